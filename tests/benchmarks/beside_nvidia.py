"""Times one recipe as whole processes, beside recipes of NVIDIA on the same input.

Seconds and peak memory of each command are medians of some runs after a warm-up. Nothing here
passes or fails.
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

KERNEL_NAMES = 200


class Timing(NamedTuple):
    """Median wall time and largest peak memory of some runs of a command."""

    seconds: float
    peak_mb: float


def write_trace(path: Path, kernels_n: int, pause_every: int = 0) -> None:
    """Write a decode-like trace: 200 kernels, one runtime call a launch, a copy now and then.

    Args:
        path: Of the SQLite export.
        kernels_n: How many.
        pause_every: Before each of so many launches the host does something else for 30 us; else
            it is always ahead of the GPU.
    """
    generator = np.random.default_rng(1)
    names = [f"void kernel_{i}<int, float>(int, float *)" for i in range(KERNEL_NAMES)]
    codes = generator.integers(0, KERNEL_NAMES, kernels_n)
    duration_ns = generator.integers(40, 300, kernels_n) * 32
    gap_ns = generator.integers(0, 50, kernels_n) * 32
    if pause_every:
        gap_ns[::pause_every] += 30_000
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


def measure(
    description: str | None,
    recipe: str,
    theirs: Sequence[Sequence[str]],
    *,
    pause_every: int = 0,
) -> None:
    """Read the command line, measure, and print seconds, memory and the ratio.

    Args:
        description: Of the script, for its help.
        recipe: Ours.
        theirs: Recipes of NVIDIA that together answer part of it, with their options.
        pause_every: See `write_trace`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", type=Path, help="only write the trace there")
    parser.add_argument("--nsys", default=shutil.which("nsys"), help="a real Nsight Systems")
    given = parser.parse_args()
    if given.write:
        write_trace(given.write, given.kernels, pause_every)
        return
    recipes = Path(__file__).parents[2] / "recipes"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NSYS_RECIPE_PATH": str(recipes)}
    with tempfile.TemporaryDirectory(prefix="nsys-llm-bench-") as temporary:
        folder = Path(temporary)
        # In a process of its own: a child's peak memory counts that of its parent when it forks.
        size = ["--kernels", str(given.kernels), "--write", str(folder / "rank0.sqlite")]
        # NVIDIA's recipes take only a report; a newer export beside it is what they read.
        (folder / "rank0.nsys-rep").touch()
        subprocess.run([sys.executable, sys.argv[0], *size], check=True)
        commands = _commands(folder, recipe, theirs, given.nsys)
        print(f"{given.kernels:,} kernels, {(folder / 'rank0.sqlite').stat().st_size / 1e6:.0f} MB")
        seconds = {}
        for name, command in commands.items():
            timing = timed(command, environment, given.runs)
            seconds[name] = timing.seconds
            print(f"{name:28} {timing.seconds:8.2f} s {timing.peak_mb:8.0f} MB")
        if given.nsys:
            total = sum(seconds[words[0]] for words in theirs)
            ratio = total / seconds[f"nsys recipe {recipe}"]
            print(f"{' + '.join(words[0] for words in theirs)}: {total:.2f} s, {ratio:.1f} x ours")


def _commands(
    folder: Path, recipe: str, theirs: Sequence[Sequence[str]], nsys: str | None
) -> dict[str, list[str]]:
    ours = ["--input", str(folder / "rank0.sqlite"), "--output", str(folder / "out")]
    ours += ["--force-overwrite", "--quiet"]
    found = {f"nsys-llm {recipe}": [sys.executable, "-m", "nsys_llm.cli", recipe, *ours]}
    if nsys:
        found[f"nsys recipe {recipe}"] = [nsys, "recipe", recipe, *ours]
        report = ["--input", str(folder / "rank0.nsys-rep"), "--force-overwrite"]
        for words in theirs:
            found[words[0]] = [nsys, "recipe", *words, *report, "--output", str(folder / "nv")]
    return found
