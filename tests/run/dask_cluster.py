"""A Dask cluster of processes in other folders, as `dask scheduler` and `dask worker` start it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from results import background

DASK = [sys.executable, "-m", "dask"]

#: Does something before a worker reads a profile, in place of `DO`.
BEFORE = """
import pathlib, sys, time
from dataclasses import replace
from importlib.util import find_spec
from nsys_llm.run import worker

def before(profile, *rest, mapped=worker._map_profile):
    DO
    return mapped(profile, *rest)

worker._map_profile = before
"""


@contextmanager
def scheduler(away: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Start a scheduler in a folder of its own; yield its file, and the process."""
    away.mkdir()
    file = away / "scheduler.json"
    command = [*DASK, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    with background([*command, "--scheduler-file", file], away) as process:
        limit_s = time.monotonic() + 60
        while not (file.is_file() and file.read_text().endswith("}")):
            assert time.monotonic() < limit_s, (away / "background.log").read_text()
            time.sleep(0.05)
        yield file, process


@contextmanager
def worker(away: Path, file: Path, preload: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker of two threads in a new folder, which runs some code before all else."""
    away.mkdir()
    (away / "preload.py").write_text(preload)
    command = [*DASK, "worker", "--scheduler-file", file, "--nthreads", "2", "--no-dashboard"]
    command += ["--no-nanny", "--local-directory", away, "--preload", away / "preload.py"]
    with background(command, away) as process:
        yield process
