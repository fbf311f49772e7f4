"""Runs commands as whole processes, in turn, and tells what they took."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

Command = Sequence[str]


class Run(NamedTuple):
    """One run: wall time, processor time of the process and its children, and peak memory."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def run(command: Command, environment: Mapping[str, str], result: Path | None) -> Run | None:
    """Run a command; None if it fails, or does not make the folder that it should.

    A peak of memory counts that of the parent, too, so keep that small.
    """
    if result is not None:
        shutil.rmtree(result, ignore_errors=True)
    before = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - before
    # Recipes of NVIDIA that fail may end with 0.
    if process.returncode or not (result is None or result.exists()):
        return None
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def keep_in_memory(file: Path) -> None:
    """Read a file, so that the system has it in memory; this process never holds much of it."""
    with file.open("rb", buffering=0) as opened:
        while opened.read(1 << 20):
            pass


def in_turn(
    commands: Mapping[str, Command],
    environments: Mapping[str, Mapping[str, str]],
    results: Mapping[str, Path],
    runs_n: int,
    *,
    warm_up: bool = True,
) -> dict[str, list[Run]]:
    """Run all commands, then all again, and so on, so that a slow minute falls on all of them.

    Args:
        commands: By name, as `environments`.
        results: Which folder a command makes, by its name; any that is there is removed.
        warm_up: Whether there is a first run of each that does not count.

    Returns:
        The runs of each, in order; none of a command that fails.
    """
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    broken = set[str]()
    for turn in range(1 - warm_up, runs_n + 1):
        for name, command in commands.items():
            if name in broken:
                continue
            measurement = run(command, environments[name], results.get(name))
            if measurement is None:
                broken.add(name)
                runs[name] = []
            elif turn:
                runs[name].append(measurement)
    return runs
