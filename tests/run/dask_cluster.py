"""A Dask cluster of processes in other folders, as `dask scheduler` and `dask worker` start it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from results import background, run

DASK = [sys.executable, "-m", "dask"]

#: Asks a cluster: (tasks done so far, whether a worker sees NVIDIA's framework, its sys.path).
ASK = """
import sys
from distributed import Client

def framework():
    import importlib.util
    return importlib.util.find_spec("nsys_recipe") is not None

def places():
    import sys
    return sys.path

with Client(scheduler_file=sys.argv[1]) as client:
    client.wait_for_workers(1, timeout=30)
    done = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)
    seen = list(client.run(framework).values())
    paths = list(client.run(places).values())
print(done, len(seen), any(seen), sys.argv[2] in paths[0])
"""


@contextmanager
def cluster(folder: Path, **changes: str) -> Iterator[Path]:
    """Start a scheduler and a worker elsewhere; yield the scheduler file, and end both."""
    with scheduler(folder / "away", **changes) as file, worker(folder / "away", file, **changes):
        yield file


@contextmanager
def scheduler(away: Path, **changes: str) -> Iterator[Path]:
    """Start a scheduler in a folder of its own; yield its file."""
    away.mkdir()
    file = away / "scheduler.json"
    command = [*DASK, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    with background([*command, "--scheduler-file", file], away, **changes):
        wait_for(file)
        yield file


@contextmanager
def worker(
    away: Path, file: Path, *words: str | Path, **changes: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker of two threads in a folder, made if need be."""
    away.mkdir(exist_ok=True)
    command = [*DASK, "worker", "--scheduler-file", file, "--nthreads", "2", "--no-dashboard"]
    command += ["--no-nanny", "--local-directory", away, *words]
    with background(command, away, **changes) as process:
        yield process


def wait_for(file: Path) -> None:
    limit = time.monotonic() + 60
    while not (file.is_file() and file.read_text().endswith("}")):
        assert time.monotonic() < limit, (file.parent / "background.log").read_text()
        time.sleep(0.05)


def ask(file: Path, folder: Path) -> tuple[int, list[str]]:
    """Return how many steps tasks took so far, and the rest of what `ASK` prints."""
    done = run([sys.executable, "-c", ASK, file, folder], folder)
    assert done.returncode == 0, done.stdout
    steps, *rest = done.stdout.split()
    return int(steps), rest


def address(file: Path) -> str:
    return json.loads(file.read_text())["address"]
