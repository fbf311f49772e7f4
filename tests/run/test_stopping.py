"""SIGTERM ends a run at once, whatever its threads, workers and programs do; nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from results import RECIPE, environment, wait_until
from trace_builder import TraceBuilder

pytestmark = pytest.mark.slow

#: As docs/robustness.md says. What must not be waited for takes ten minutes, or reads for a minute.
SOON_S = 2
MOST_S = 30

#: Reads a profile for ever, and waits in a way that lets Python handle no signal meanwhile.
STUCK = """
import ctypes, pathlib, sys
from nsys_llm.run import cli, worker

def stuck(profile, *_):
    lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    pathlib.Path({begun!r}).touch()
    lock(mutex)

worker._map_profile = stuck
sys.exit(cli.main())
"""

#: Exports for ever, after it has begun to write.
SLOW_NSYS = """#!{python}
import pathlib, sys, time
made = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
made.mkdir(parents=True)
(made / "half.parquet").write_bytes(b"half")
pathlib.Path({begun!r}).touch()
time.sleep(600)
"""


def terminated(command: list[str], begun: Path, **changes: str) -> tuple[float, int, str]:
    """Terminate a command once it has begun; return how long it took to end, its code and words."""
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment(**changes)
    ) as process:
        wait_until(begun, process)
        since_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            said = process.communicate(timeout=MOST_S)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return time.monotonic() - since_s, process.returncode, said


def ranks(folder: Path) -> Path:
    folder.mkdir()
    for rank in range(3):
        report = TraceBuilder().kernel("k", start_ns=5, duration_ns=9, launch=(0, 1))
        report.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


@pytest.mark.nightly("concurrent")
@pytest.mark.parametrize("mode", ["none", "concurrent"])
def test_threads_that_compute_are_not_waited_for(tmp_path, mode):
    begun, script = tmp_path / "begun", tmp_path / "stuck.py"
    script.write_text(STUCK.format(begun=str(begun)))
    words = [RECIPE, "--mode", mode, "--input", ranks(tmp_path / "ranks")]
    command = [sys.executable, script, *words, "--output", tmp_path / "out"]
    taken_s, code, said = terminated([*map(str, command)], begun)
    assert (code, said) == (143, "")
    assert taken_s < SOON_S
    assert sorted(os.listdir(tmp_path)) == ["begun", "ranks", "stuck.py"]


def endless_exports(folder: Path) -> tuple[Path, str]:
    """Make reports whose export never ends; return what shows that one began, and a PATH."""
    begun, nsys, reports = folder / "begun", folder / "bin" / "nsys", folder / "reports"
    nsys.parent.mkdir()
    nsys.write_text(SLOW_NSYS.format(python=sys.executable, begun=str(begun)))
    nsys.chmod(0o755)
    reports.mkdir()
    for rank in range(2):  # of more than one, threads make the exports
        (reports / f"rank{rank}.nsys-rep").write_bytes(b"report")
    return begun, os.pathsep.join([str(nsys.parent), os.environ["PATH"]])


def assert_no_export_is_left(folder: Path) -> None:
    assert sorted(os.listdir(folder / "reports")) == ["rank0.nsys-rep", "rank1.nsys-rep"]
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(folder / "bin" / "nsys") not in running.stdout


def test_an_export_ends_with_the_run_and_leaves_nothing(tmp_path):
    begun, path = endless_exports(tmp_path)
    reports = tmp_path / "reports"
    code_of_run = f"import os; os.environ['PATH'] = {path!r}; from nsys_llm.run import cli"
    words = [RECIPE, "--input", str(reports), "--output", str(tmp_path / "out")]
    command = [sys.executable, "-c", f"{code_of_run}; cli.main()", *words]
    taken_s, code, said = terminated(command, begun)
    assert (code, said) == (143, "")
    assert taken_s < SOON_S
    assert sorted(os.listdir(tmp_path)) == ["begun", "bin", "reports"]
    assert_no_export_is_left(tmp_path)
