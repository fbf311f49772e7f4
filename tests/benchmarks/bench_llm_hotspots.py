"""Times llm_hotspots as whole processes, beside NVIDIA's recipes on the same input.

    python tests/benchmarks/bench_llm_hotspots.py --kernels 1000000 --nsys PATH/bin/nsys

Prints seconds and peak memory of each command, median of some runs, and the ratio to the sum of the
four NVIDIA recipes whose questions llm_hotspots answers. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nsys_llm.trace_builder import TraceBuilder

NVIDIA_RECIPES = (
    "cuda_gpu_kern_sum",
    "cuda_api_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
)
KERNEL_NAMES = 200


class Timing(NamedTuple):
    """Median wall time and largest peak memory of some runs of a command."""

    seconds: float
    peak_mb: float


def write_trace(path: Path, kernels_n: int) -> None:
    """Write a decode-like trace: 200 kernels, one runtime call a launch, a copy now and then."""
    generator = np.random.default_rng(1)
    names = [f"void kernel_{i}<int, float>(int, float *)" for i in range(KERNEL_NAMES)]
    codes = generator.integers(0, KERNEL_NAMES, kernels_n)
    duration_ns = generator.integers(40, 300, kernels_n) * 32
    gap_ns = generator.integers(0, 50, kernels_n) * 32
    start_ns = np.cumsum(duration_ns + gap_ns) - duration_ns + 20_000
    # A thread is in one call at a time: a launch returns before the next begins.
    call_ns = start_ns - 9_000
    returned_ns = call_ns + generator.integers(1_100, 1_280, kernels_n)
    builder = TraceBuilder(schema="3.7.2", lazy=False)
    builder.kernels(
        names,
        codes,
        start_ns=start_ns,
        end_ns=start_ns + duration_ns,
        launch_ns=(call_ns, returned_ns),
    )
    for _ in range(3):
        builder.memcpy("HtoD", start_ns=1_000, duration_ns=2_000, size_bytes=4_096)
    builder.write_sqlite(path)


def timed(command: Sequence[str], environment: dict[str, str], runs_n: int) -> Timing:
    """Run a command some times after a warm-up; raise if it fails."""
    seconds, peaks_mb = [], []
    for run in range(runs_n + 1):
        before = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
        if run:
            seconds.append(time.perf_counter() - before)
            peaks_mb.append(usage.ru_maxrss / 1024)
    return Timing(statistics.median(seconds), max(peaks_mb))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", type=Path, help="only write the trace there")
    parser.add_argument("--nsys", default=shutil.which("nsys"), help="a real Nsight Systems")
    given = parser.parse_args()
    if given.write:
        write_trace(given.write, given.kernels)
        return
    recipes = Path(__file__).parents[2] / "recipes"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NSYS_RECIPE_PATH": str(recipes)}
    with tempfile.TemporaryDirectory(prefix="nsys-llm-bench-") as temporary:
        folder = Path(temporary)
        report = folder / "rank0.nsys-rep"
        report.touch()
        # NVIDIA's recipes take only a report; a newer export beside it is what they read.
        # In a process of its own: a child's peak memory counts that of its parent when it forks.
        size = ["--kernels", str(given.kernels), "--write", str(folder / "rank0.sqlite")]
        subprocess.run([sys.executable, __file__, *size], check=True)
        export, out = str(folder / "rank0.sqlite"), str(folder / "out")
        ours = ["--input", export, "--output", out, "--force-overwrite", "--quiet"]
        commands = {
            "nsys-llm llm_hotspots": [sys.executable, "-m", "nsys_llm.cli", "llm_hotspots", *ours]
        }
        if given.nsys:
            commands["nsys recipe llm_hotspots"] = [given.nsys, "recipe", "llm_hotspots", *ours]
            theirs = ["--input", str(report), "--output", out + "-nv", "--force-overwrite"]
            commands |= {name: [given.nsys, "recipe", name, *theirs] for name in NVIDIA_RECIPES}
        print(f"{given.kernels:,} kernels, {(folder / 'rank0.sqlite').stat().st_size / 1e6:.0f} MB")
        timings = {}
        for name, command in commands.items():
            timings[name] = timed(command, environment, given.runs)
            print(f"{name:28} {timings[name].seconds:8.2f} s {timings[name].peak_mb:8.0f} MB")
        if given.nsys:
            total = sum(timings[name].seconds for name in NVIDIA_RECIPES)
            ratio = total / timings["nsys recipe llm_hotspots"].seconds
            print(f"NVIDIA's four together {total:.2f} s: {ratio:.1f} times ours")


if __name__ == "__main__":
    main()
