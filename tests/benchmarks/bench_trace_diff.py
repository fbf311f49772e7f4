"""Times trace_diff as a whole process, on two traces of the same size.

    python tests/benchmarks/bench_trace_diff.py --kernels 1000000

Prints wall seconds, CPU seconds and peak memory, medians of some runs after a warm-up. For 1M
kernels a side, `nsys-ai diff` took 81 CPU seconds and 2,215 MB on the machine of the performance
notes. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from beside_nvidia import write_trace

#: CPU seconds of `nsys-ai diff` on two traces of so many kernels, and that number.
PEER_CPU_SECONDS, PEER_KERNELS = 81.0, 1_000_000


def timed(command: list[str]) -> tuple[float, float, float]:
    """Return wall seconds, CPU seconds and peak memory in MB of a command."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{command[2:4]} failed")
    seconds = time.perf_counter() - begin
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=PEER_KERNELS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", type=Path, help="only write both traces into that folder")
    given = parser.parse_args()
    if given.write:
        # The host of the second one lags now and then.
        for name, pause_every in (("before", 0), ("after", 40)):
            write_trace(given.write / f"{name}.sqlite", given.kernels, pause_every)
        return
    with tempfile.TemporaryDirectory(prefix="nsys-llm-bench-") as folder:
        # In a process of its own: a child's peak memory counts that of its parent when it forks.
        size = ["--kernels", str(given.kernels), "--write", folder]
        subprocess.run([sys.executable, __file__, *size], check=True)
        sides = ["--baseline", f"{folder}/before.sqlite", "--input", f"{folder}/after.sqlite"]
        words = ["--output", f"{folder}/out", "--force-overwrite", "--quiet", *sides]
        command = [sys.executable, "-m", "nsys_llm.cli", "trace_diff", *words]
        found = [timed(command) for _ in range(given.runs + 1)][1:]
    wall, cpu, peak = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"trace_diff {wall:8.2f} s {cpu:8.2f} CPU s {peak:8.0f} MB")
    if given.kernels == PEER_KERNELS:
        print(
            f"nsys-ai diff, as noted elsewhere: {PEER_CPU_SECONDS / cpu:.1f} times our CPU seconds"
        )


if __name__ == "__main__":
    main()
