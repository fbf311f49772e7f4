"""Jobs with planted changes: hosts launch, GPUs run in order, ranks meet in all-reduces.

A kernel starts when its launch has returned and the one before it has ended, so that a GPU waits
for a slow host and hides a fast one, as real ones do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import quick_run
from finding_numbers import checked
from results import read_frames, read_report
from trace_builder import TraceBuilder

from nsys_llm.report.report import report_record
from nsys_llm.run.cli import main

#: Name, ns, blocks, and how often in a step.
Kernel = tuple[str, int, int, int]

GEMM, NORM, ATTENTION = "sm90_xmma_gemm_bf16_tn_n", "rms_norm_kernel", "flash_fwd_kernel"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
#: The GPU is the limit, both are, the host is.
GPU_BOUND: tuple[Kernel, ...] = (
    (GEMM, 60_000, 64, 4),
    (NORM, 4_000, 64, 4),
    (ATTENTION, 40_000, 128, 2),
)
BALANCED: tuple[Kernel, ...] = ((GEMM, 20_000, 64, 6), (NORM, 2_000, 64, 10))
HOST_BOUND: tuple[Kernel, ...] = ((NORM, 2_000, 64, 20),)

_VIEW_NS, _CALL_NS, _RETURN_NS = 3_000, 6_000, 200


@dataclass(frozen=True)
class Job:
    """What a run does.

    Attributes:
        kernels: Of a step, or a function of its number.
        name: Of a step, or a function of its number.
        steps: How many.
        ranks: How many; with more than one, each step ends in an all-reduce.
        host: Factor of what the host does, `gpu` of what kernels take; of `rank` alone if given.
        gpu: See host.
        rank: See host.
        late_ns: By the number of a step, what its host is idle before it; of `rank` alone if given.
        late_range: Range around that.
        flush_ns: Time of the profiler in every fifth step.
        copies: Blocking copies of pageable memory before each step, each of `copy_ns`.
        drift: Lag-1 correlation of what all steps take more or less; `drift_size` is how much.
        ranges: Whether ranges are recorded.
        without: Ranks whose profiles are missing.
        noise: Relative spread of each thing the host and the GPU do.
        transfer_ns: Of an all-reduce.
        model: Name of the GPUs.
    """

    kernels: Sequence[Kernel] | Callable[[int], Sequence[Kernel]] = GPU_BOUND
    name: str | Callable[[int], str] = "step"
    steps: int = 30
    ranks: int = 1
    host: float = 1.0
    gpu: float = 1.0
    rank: int | None = None
    late_ns: dict[int, int] = field(default_factory=dict)
    late_range: str | None = None
    flush_ns: int = 0
    copies: int = 0
    copy_ns: int = 80_000
    drift: float = 0.0
    drift_size: float = 0.0
    ranges: bool = True
    without: tuple[int, ...] = ()
    noise: float = 0.003
    transfer_ns: int = 20_000
    model: str = "NVIDIA H100 80GB HBM3"

    def write(self, path: Path, seed: int = 0) -> Path:
        ranks = [
            _Rank(self, number, np.random.default_rng([seed, number]))
            for number in range(self.ranks)
        ]
        paces = self._paces(np.random.default_rng([seed, 99]))
        for step in range(self.steps):
            for rank in ranks:
                rank.pace = paces[step]
                rank.compute(step)
            if self.ranks > 1:
                _meet(ranks, self.transfer_ns)
            for rank in ranks:
                rank.end(step)
        path.mkdir()
        for number, rank in enumerate(ranks):
            if number not in self.without:
                rank.trace.write_sqlite(path / f"rank{number}.sqlite")
        return path

    def _paces(self, rng: np.random.Generator) -> list[float]:
        value, paces = rng.standard_normal(), []
        for _ in range(self.steps):
            paces.append(1 + self.drift_size * value)
            value = self.drift * value + np.sqrt(1 - self.drift**2) * rng.standard_normal()
        return paces


class _Rank:
    def __init__(self, job: Job, number: int, rng: np.random.Generator) -> None:
        self.job, self.rng = job, rng
        alone = job.rank in (None, number)
        self.host, self.gpu = (job.host, job.gpu) if alone else (1.0, 1.0)
        self.late_ns = job.late_ns if alone else {}
        self.pace = 1.0
        self.trace = TraceBuilder(hostname="node", system_clock_ns=1_000, gpu_name=job.model)
        self.trace.process(pid=number + 1, name="worker")
        self.host_ns = self.gpu_ns = self.begin_ns = 100_000

    def took(self, ns: float) -> int:
        return round(ns * (1 + self.job.noise * self.rng.standard_normal()))

    def launch(self) -> tuple[int, int]:
        view, call = (self.took(ns * self.host) for ns in (_VIEW_NS, _CALL_NS))
        if self.job.ranges:
            self.trace.nvtx("aten::view", self.host_ns, self.host_ns + view)
        start = self.host_ns + view
        self.host_ns = start + call + _RETURN_NS
        return start, start + call

    def compute(self, step: int) -> None:
        self.begin_ns = self.host_ns
        late_ns = self.late_ns.get(step, 0)
        if late_ns and self.job.late_range:
            self.trace.nvtx(self.job.late_range, self.host_ns, self.host_ns + late_ns)
        self.host_ns += late_ns
        if self.job.flush_ns and step % 5 == 2:
            end = self.host_ns + self.job.flush_ns
            self.trace.overhead("CUPTI activity buffer flush", start_ns=self.host_ns, end_ns=end)
            self.host_ns = end + 100
        for _ in range(self.job.copies):
            self.copy()
        kernels = self.job.kernels
        for name, ns, blocks, calls in kernels(step) if callable(kernels) else kernels:
            for _ in range(calls):
                call = self.launch()
                start = max(call[1] + 1_000, self.gpu_ns + 500)
                self.gpu_ns = start + self.took(ns * self.gpu * self.pace)
                self.trace.kernel(
                    name, start_ns=start, end_ns=self.gpu_ns, grid=(blocks, 1, 1), launch=call
                )

    def copy(self) -> None:
        """Copy pageable memory, which waits for the GPU and blocks the host."""
        start = max(self.host_ns, self.gpu_ns) + 1_000
        self.gpu_ns = start + self.took(self.job.copy_ns)
        call = (self.host_ns, self.gpu_ns + 500)
        self.trace.memcpy(
            "HtoD", start_ns=start, end_ns=self.gpu_ns, size_bytes=1_000_000, launch=call,
            launch_name="cudaMemcpy_v3020", src_memory="pageable",
        )  # fmt: skip
        self.host_ns = call[1] + _RETURN_NS

    def end(self, step: int) -> None:
        """Wait for the GPU, as a host does that reads a loss or a token."""
        done = max(self.host_ns, self.gpu_ns) + 2_000
        self.trace.api("cudaStreamSynchronize_v3020", start_ns=self.host_ns, end_ns=done)
        name = self.job.name
        if self.job.ranges:
            text = name(step) if callable(name) else f"{name} {step}"
            self.trace.nvtx(text, self.begin_ns, done)
        self.host_ns = done + 300


def _meet(ranks: Sequence[_Rank], transfer_ns: int) -> None:
    calls = [rank.launch() for rank in ranks]
    starts = [
        max(call[1] + 1_000, rank.gpu_ns + 500) for rank, call in zip(ranks, calls, strict=True)
    ]
    end = max(starts) + ranks[0].took(transfer_ns)
    for rank, call, start in zip(ranks, calls, starts, strict=True):
        rank.trace.kernel(NCCL, start_ns=start, end_ns=end, grid=(16, 1, 1), launch=call)
        rank.gpu_ns = end


@dataclass(frozen=True)
class Compared:
    """What trace_diff says of two runs: lines of the answer, findings by rule, tables."""

    lines: list[str]
    rules: Mapping[str, Any]
    tables: Mapping[str, Any]

    @property
    def answer(self) -> str:
        return "\n".join(self.lines)

    @property
    def verdict(self) -> Any:
        return self.tables["verdict"].iloc[0]

    @property
    def word(self) -> str:
        return str(self.verdict["word"])

    def classes(self) -> Any:
        wall = self.tables["wall_change"]
        mean = wall[wall["rank"].isna() & wall["detail"].isna()]
        return mean.set_index("wall_class")["change_ns"]


def compare(
    folder: Path, before: Job | Path, after: Job | Path, *options: object, code: int = 0
) -> Compared:
    """Compare two jobs, or two runs that are written; every number in a finding is checked.

    By day only what has options is a whole run, which takes half as long again.
    """
    paths = [
        run.write(folder / f"run{seed}", seed) if isinstance(run, Job) else run
        for seed, run in enumerate((before, after))
    ]
    if options or code or quick_run.findings_at_once:
        out = folder / f"out{len(list(folder.glob('out*')))}"
        words = ["--mode", "none", "--output", out, "--baseline", paths[0], "--input", paths[1]]
        assert main(["trace_diff", *map(str, [*words, *options])]) == code
        report, tables = read_report(out)["report"], read_frames(out)
    else:
        part = quick_run.quick_part("trace_diff", f"--baseline={paths[0]}", paths[1])
        report, tables = json.loads(json.dumps(report_record(part.report))), part.tables
    checked(report)
    rules = {item["rule"]: item for item in report["findings"] if item["kind"] != "capture"}
    return Compared(report["answer"].splitlines(), rules, tables)
