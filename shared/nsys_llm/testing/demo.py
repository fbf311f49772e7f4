"""Makes a small rank set of an LLM server, with findings planted in it, for demos and tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from nsys_llm.taxonomy.cuda_codes import COPY_KINDS, MEMORY_KINDS
from nsys_llm.testing.demo_model import RankSet
from nsys_llm.testing.demo_workload import BATCH_1, BATCH_16, SYNC_COPY_BYTES, run_step
from nsys_llm.testing.trace_bulk import BulkTraceBuilder
from nsys_llm.testing.trace_schema import Cells

RANKS: Final = 4
DECODE_STEPS: Final = 24
#: Process of rank 0; the others follow. Threads of each are its pid and these numbers more.
_FIRST_PID: Final = 4101
_WATCHDOG, _PROFILER = 70, 71
#: How much longer the kernels of each rank take; rank 2's GPU is throttled, and healed.
SLOWNESS: Final = (1.0, 1.003, 1.22, 0.998)
HEALED: Final = (1.0, 1.003, 1.001, 0.998)
#: Runs by the name of their folder.
_RUNS: Final = {
    "baseline": (BATCH_1, SLOWNESS),
    "after": (BATCH_16, SLOWNESS),
    "after_fix": (BATCH_1, HEALED),
}
#: When each rank's capture starts after the first one's, and how wrong its wall clock is, ns.
_CAPTURE_STARTS_NS: Final = (0, 1_310_000, 420_000, 2_050_000)
_CLOCK_ERRORS_NS: Final = (0, 700, -400, 250)
#: From the start of the first capture to the first event.
_LEAD_IN_NS: Final = 40_000_000
#: Of ENUM_NSYS_EVENT_CLASS, and of its kinds of overhead.
_CUDA_OVERHEAD, _BUFFER_FLUSH = 103, 3
#: Memory kinds of the source and of the destination, by kind of copy.
_COPIED_BETWEEN: Final = {
    "HtoD": ("pinned", "device"),
    "DtoH": ("device", "pinned"),
    "DtoD": ("device", "device"),
}
_SECRET: Final = "planted-value-that-no-output-may-show"


@dataclass(frozen=True)
class DemoSet:
    """Where a demo set lies.

    Attributes:
        baseline: One SQLite export per rank, in the order of ranks.
        after: The same of a later run, which has other work.
        after_fix: The same of a later run of the same work, with a GPU repaired.
    """

    baseline: tuple[Path, ...]
    after: tuple[Path, ...]
    after_fix: tuple[Path, ...]


class _DemoReport(BulkTraceBuilder):
    def copy(self, kind: str, size_bytes: int, span_ns: tuple[int, int], call: int) -> None:
        """Add a copy, or a fill for the kind `memset`, by the correlation id of its call."""
        columns: dict[str, Cells] = {
            "start": span_ns[0],
            "end": span_ns[1],
            "bytes": size_bytes,
            "correlationId": int(self._correlation_ids([call], 1, None)[0]),
            "graphNodeId": None,
            **self._place(),
        }
        if kind == "memset":
            columns |= {"value": 0, "memKind": MEMORY_KINDS.index("device")}
            self._add("CUPTI_ACTIVITY_KIND_MEMSET", 1, columns)
            return
        source, target = _COPIED_BETWEEN[kind]
        if size_bytes == SYNC_COPY_BYTES:
            source = "pageable"
        columns |= {"copyKind": COPY_KINDS.index(kind), "copyCount": 1}
        columns |= {"srcKind": MEMORY_KINDS.index(source), "dstKind": MEMORY_KINDS.index(target)}
        self._add("CUPTI_ACTIVITY_KIND_MEMCPY", 1, columns)

    def flush(self, start_ns: int, tid: int) -> None:
        """Add 0.12 ms in which the profiler empties its buffers."""
        columns: dict[str, Cells] = {
            "start": start_ns,
            "end": start_ns + 120_000,
            "eventClass": _CUDA_OVERHEAD,
            "nameId": self._string_id("CUPTI Buffer flush"),
            "overheadType": _BUFFER_FLUSH,
            "globalTid": self._thread(None, tid),
        }
        self._add("PROFILER_OVERHEAD", 1, columns)


def write_demo(folder: Path, *, scale: float = 1.0) -> DemoSet:
    """Write three runs of a server on four GPUs, of which one is slow.

    `baseline/` has batch 1, `after/` 16; `after_fix/` is the baseline again, its slow GPU healed.

    Args:
        folder: Where to; the three folders in it must not exist.
        scale: Number of decode steps relative to the full set.

    Raises:
        OutputError: A file is there already.
    """
    steps = steps_of(scale)
    runs = {}
    for number, (name, (workload, slowness)) in enumerate(_RUNS.items()):
        ranks = RankSet(np.random.default_rng(number), np.array(slowness))
        for step in range(steps):
            run_step(ranks, workload, step, steps)
        (folder / name).mkdir(parents=True, exist_ok=True)
        epoch_ns = 1_760_000_000_000_000_000 + number * 3_600_000_000_000
        runs[name] = tuple(
            _report(ranks, rank, epoch_ns).write_sqlite(folder / name / f"rank{rank}.sqlite")
            for rank in range(RANKS)
        )
    return DemoSet(**runs)


def steps_of(scale: float) -> int:
    """Return how many steps each rank of a set of this size has."""
    return 1 + max(round(DECODE_STEPS * scale), 12)


def _report(ranks: RankSet, rank: int, epoch_ns: int) -> BulkTraceBuilder:
    """Return what Nsight Systems would have exported for one rank, in its own clock."""
    capture_ns = _CAPTURE_STARTS_NS[rank]
    pid = _FIRST_PID + rank
    report = _DemoReport(
        hostname="gpu-node-01",
        utc_epoch_ns=epoch_ns + capture_ns + _CLOCK_ERRORS_NS[rank],
        system_clock_ns=epoch_ns // 1_000_000 + capture_ns,
    ).process(pid=pid, name=f"VLLM::Worker_TP{rank}", gpu_ids=(rank,))
    report.environment(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(RANKS),
        CUDA_VISIBLE_DEVICES=str(rank),
        DEMO_API_KEY=_SECRET,
    )
    report.thread(pid, f"VLLM::Worker_TP{rank}").thread(pid + _WATCHDOG, "pt_nccl_watchdg")
    shift_ns = _LEAD_IN_NS - capture_ns
    _add_calls(report, ranks, rank, shift_ns)
    _add_gpu_work(report, ranks, rank, shift_ns)
    _add_ranges(report, ranks, rank, shift_ns)
    return report


def _add_calls(report: _DemoReport, ranks: RankSet, rank: int, shift_ns: int) -> None:
    names = sorted({name for name, _, _ in ranks.calls})
    start_ns = np.array([start[rank] for _, start, _ in ranks.calls]) + shift_ns
    end_ns = np.array([end[rank] for _, _, end in ranks.calls]) + shift_ns
    codes = [names.index(name) for name, _, _ in ranks.calls]
    report.apis(names, codes, start_ns=start_ns, end_ns=end_ns)
    # The watchdog of the collectives polls all the while, on a thread of its own.
    polls_ns = np.arange(start_ns[0], end_ns[-1], 1_000_000)
    report.apis(
        ["cudaEventQuery_v3020"],
        np.zeros(len(polls_ns), dtype=np.int64),
        start_ns=polls_ns,
        end_ns=polls_ns + 1_700,
        tid=_FIRST_PID + rank + _WATCHDOG,
    )


def _add_gpu_work(report: _DemoReport, ranks: RankSet, rank: int, shift_ns: int) -> None:
    """Add kernels and copies; call number n of the main thread has correlation id n + 1."""
    codes, nodes, calls = np.array([row[:3] for row in ranks.kernels]).T
    kinds = list(ranks.kinds)
    names = list(dict.fromkeys(kind.name for kind in kinds))
    report.kernels(
        names,
        np.array([names.index(kind.name) for kind in kinds])[codes],
        start_ns=np.array([row[3][rank] for row in ranks.kernels]) + shift_ns,
        end_ns=np.array([row[4][rank] for row in ranks.kernels]) + shift_ns,
        correlation_ids=calls + 1,
        graph_node_ids=nodes,
        grid=np.array([kind.grid for kind in kinds])[codes],
        block=np.array([kind.block for kind in kinds])[codes],
        dynamic_shared_bytes=np.array([kind.dynamic_shared_bytes for kind in kinds])[codes],
    )
    for kind, size_bytes, call, starts_ns, ends_ns in ranks.copies:
        span_ns = int(starts_ns[rank]) + shift_ns, int(ends_ns[rank]) + shift_ns
        report.copy(kind, size_bytes, span_ns, call + 1)


def _add_ranges(report: _DemoReport, ranks: RankSet, rank: int, shift_ns: int) -> None:
    for domain in ("", "NCCL"):
        rows = [row for row in ranks.ranges if row[1] == domain]
        report.nvtx_ranges(
            [row[0] for row in rows],
            start_ns=np.array([row[2][rank] for row in rows]) + shift_ns,
            end_ns=np.array([row[3][rank] for row in rows]) + shift_ns,
            domain=domain,
            registered=bool(domain),
        )
    # The profiler empties its buffers once, while the GPU is idle between two steps.
    idle_ns = [int(start[rank]) for text, _, start, _ in ranks.ranges if text == "schedule"]
    report.flush(idle_ns[len(idle_ns) // 3] + shift_ns + 60_000, _FIRST_PID + rank + _PROFILER)
