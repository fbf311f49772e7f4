"""Times nvtx_phase_attribution as whole processes, beside NVIDIA's projection of NVTX ranges.

    python tests/benchmarks/bench_nvtx_phases.py --kernels 1000000 --nsys PATH/bin/nsys

Prints seconds and peak memory of each command, median of some runs, and the ratio to NVIDIA's
`nvtx_gpu_proj_trace` on SQLite, and with --parquet to `nvtx_gpu_proj_sum` on parquet; those need
numpy < 2 in the Python that --nvidia-python names. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from beside_nvidia import KERNEL_NAMES, timed

from nsys_llm.trace_builder import TraceBuilder

#: Kernels in an operator, in a layer, and in a step: three ranges for ten kernels.
OPERATOR, LAYER, STEP = 4, 24, 768
CALL_NS = 1_280


def write_trace(path: Path, kernels_n: int) -> None:
    """Write a decode-like trace whose launches lie in operators, layers, phases and steps."""
    generator = np.random.default_rng(1)
    names = [f"void kernel_{i}<int, float>(int, float *)" for i in range(KERNEL_NAMES)]
    duration_ns = generator.integers(40, 300, kernels_n) * 32
    gap_ns = generator.integers(50, 80, kernels_n) * 32
    start_ns = np.cumsum(duration_ns + gap_ns) - duration_ns + 40_000
    call_ns = start_ns - 9_000
    builder = TraceBuilder(schema="3.7.2", lazy=False)
    builder.kernels(
        names,
        generator.integers(0, KERNEL_NAMES, kernels_n),
        start_ns=start_ns,
        end_ns=start_ns + duration_ns,
        launch_ns=(call_ns, call_ns + CALL_NS),
    )
    builder.memcpy("HtoD", start_ns=1_000, duration_ns=2_000, size_bytes=4_096)
    operators = [f"aten::op_{i}" for i in range(40)]
    for level, (length, margin_ns) in enumerate(
        ((OPERATOR, 20), (LAYER, 60), (STEP, 100), (STEP, 140))
    ):
        first = np.arange(0, kernels_n, length)
        last = np.minimum(first + length, kernels_n) - 1
        texts = [
            operators[i % 40] if level == 0
            else f"layer_{i % 32}" if level == 1
            else ("prefill" if i % 16 == 0 else "decode") if level == 2
            else f"step {i}"
            for i in range(len(first))
        ]  # fmt: skip
        builder.nvtx_ranges(
            texts,
            start_ns=call_ns[first] - margin_ns,
            end_ns=call_ns[last] + CALL_NS + margin_ns,
        )
    if path.suffix:
        builder.write_sqlite(path)
    else:
        builder.write_parquet(path)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", type=Path, help="only write the trace there")
    parser.add_argument("--parquet", action="store_true", help="read parquet instead of SQLite")
    parser.add_argument("--nsys", default=shutil.which("nsys"), help="a real Nsight Systems")
    parser.add_argument("--nvidia-python", type=Path, help="bin folder with numpy < 2, pandas < 3")
    given = parser.parse_args()
    if given.write:
        write_trace(given.write, given.kernels)
        return
    with tempfile.TemporaryDirectory(prefix="nsys-llm-bench-") as temporary:
        _measure(given, Path(temporary))


def _measure(given: argparse.Namespace, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    recipes = Path(__file__).parents[2] / "recipes"
    environment = {**os.environ, "PATH": path, "NSYS_RECIPE_PATH": str(recipes)}
    report = folder / "rank0.nsys-rep"
    report.touch()
    export = folder / ("rank0_pqtdir" if given.parquet else "rank0.sqlite")
    # In a process of its own: a child's peak memory counts that of its parent when it forks.
    size = ["--kernels", str(given.kernels), "--write", str(export)]
    subprocess.run([sys.executable, __file__, *size], check=True)
    ours = ["--input", str(export), "--output", str(folder / "out"), "--force-overwrite"]
    recipe = "nvtx_phase_attribution"
    commands = {"nsys-llm": [sys.executable, "-m", "nsys_llm.cli", recipe, *ours, "--quiet"]}
    if given.nsys:
        commands["nsys recipe"] = [given.nsys, "recipe", recipe, *ours]
    seconds = {}
    for name, command in commands.items():
        timing = timed(command, environment, given.runs)
        seconds[name] = timing.seconds
        print(f"{name:28} {timing.seconds:8.2f} s {timing.peak_mb:8.0f} MB")
    if given.nsys and given.nvidia_python:
        theirs = "nvtx_gpu_proj_sum" if given.parquet else "nvtx_gpu_proj_trace"
        environment["PATH"] = f"{given.nvidia_python}{os.pathsep}{os.environ['PATH']}"
        words = ["--input", str(report), "--output", str(folder / "nv"), "--force-overwrite"]
        timing = timed([given.nsys, "recipe", theirs, *words], environment, given.runs)
        print(f"{theirs:28} {timing.seconds:8.2f} s {timing.peak_mb:8.0f} MB")
        print(f"{theirs}: {timing.seconds / seconds['nsys recipe']:.1f} times ours")


if __name__ == "__main__":
    main()
