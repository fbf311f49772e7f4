"""Times tail_stats as whole processes, beside NVIDIA's kernel summary on the same input.

    python tests/benchmarks/bench_tail_stats.py --kernels 1000000 --nsys PATH/bin/nsys

Prints seconds and peak memory of each command, median of some runs, and the ratio to NVIDIA's
`cuda_gpu_kern_sum`, which answers a small part of it. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_llm_hotspots import timed, write_trace

NVIDIA_RECIPE = "cuda_gpu_kern_sum"


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
        # In a process of its own: a child's peak memory counts that of its parent when it forks.
        size = ["--kernels", str(given.kernels), "--write", str(folder / "rank0.sqlite")]
        subprocess.run([sys.executable, __file__, *size], check=True)
        ours = ["--input", str(folder / "rank0.sqlite"), "--output", str(folder / "out")]
        ours += ["--force-overwrite", "--quiet"]
        commands = {
            "nsys-llm tail_stats": [sys.executable, "-m", "nsys_llm.cli", "tail_stats", *ours]
        }
        if given.nsys:
            commands["nsys recipe tail_stats"] = [given.nsys, "recipe", "tail_stats", *ours]
            theirs = ["--input", str(report), "--output", str(folder / "nv"), "--force-overwrite"]
            commands[NVIDIA_RECIPE] = [given.nsys, "recipe", NVIDIA_RECIPE, *theirs]
        seconds = {}
        for name, command in commands.items():
            timing = timed(command, environment, given.runs)
            seconds[name] = timing.seconds
            print(f"{name:28} {timing.seconds:8.2f} s {timing.peak_mb:8.0f} MB")
        if given.nsys:
            ratio = seconds[NVIDIA_RECIPE] / seconds["nsys recipe tail_stats"]
            print(f"{NVIDIA_RECIPE}: {ratio:.1f} times ours")


if __name__ == "__main__":
    main()
