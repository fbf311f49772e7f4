"""SIGTERM ends a run at once, whatever its threads, workers and programs do; nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from results import RECIPE, environment

from nsys_llm.testing.trace_builder import TraceBuilder

#: What must not be waited for takes ten minutes; the end takes 0.1 s, and more on a busy machine.
SOON_S = 20

#: Reads a profile for ever, as a search over a large table does: without looking at signals.
STUCK = """
import pathlib, sys, time
from nsys_llm.run import command, worker

def stuck(profile, *_):
    pathlib.Path({begun!r}).touch()
    time.sleep(600)

worker._map_profile = stuck
sys.exit(command.main())
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
    """Terminate a command once it has begun; return the time until its end, its code and words."""
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment(**changes)
    ) as process:
        limit_s = time.monotonic() + 60
        while not begun.exists():
            assert time.monotonic() < limit_s
            assert process.poll() is None
            time.sleep(0.05)
        since_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
        return time.monotonic() - since_s, process.returncode, said


def ranks(folder: Path) -> Path:
    folder.mkdir()
    for rank in range(3):
        report = TraceBuilder().kernel("k", start_ns=5, duration_ns=9, launch=(0, 1))
        report.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


@pytest.mark.parametrize("mode", ["none", "concurrent"])
def test_threads_that_compute_are_not_waited_for(tmp_path, mode):
    begun, script = tmp_path / "begun", tmp_path / "stuck.py"
    script.write_text(STUCK.format(begun=str(begun)))
    words = [RECIPE, "--mode", mode, "--input", ranks(tmp_path / "ranks")]
    command = [sys.executable, script, *words, "--output", tmp_path / "new" / "out"]
    taken_s, code, said = terminated([*map(str, command)], begun)
    assert (code, said) == (143, "")
    assert taken_s < SOON_S
    assert sorted(os.listdir(tmp_path)) == ["begun", "ranks", "stuck.py"]


@pytest.mark.cluster
def test_a_local_cluster_is_not_waited_for(tmp_path):
    begun, script = tmp_path / "begun", tmp_path / "stuck.py"
    # What is run is imported by its workers too.
    text = STUCK.replace("sys.exit(", "if __name__ == '__main__':\n    sys.exit(")
    script.write_text(text.format(begun=str(begun)))
    words = [RECIPE, "--mode", "dask-futures", "--input", ranks(tmp_path / "ranks")]
    command = [sys.executable, script, *words, "--output", tmp_path / "out"]
    scratch = tmp_path / "scratch"
    taken_s, code, said = terminated(
        [*map(str, command)], begun, DASK_TEMPORARY_DIRECTORY=str(scratch)
    )
    assert (code, said) == (143, "")
    assert taken_s < SOON_S
    assert sorted(os.listdir(tmp_path)) == ["begun", "ranks", "scratch", "stuck.py"]
    assert not [path for path in scratch.rglob("*") if path.name.startswith("worker-")]


def test_an_export_ends_with_the_run_and_leaves_nothing(tmp_path):
    begun, nsys, reports = tmp_path / "begun", tmp_path / "bin" / "nsys", tmp_path / "reports"
    nsys.parent.mkdir()
    nsys.write_text(SLOW_NSYS.format(python=sys.executable, begun=str(begun)))
    nsys.chmod(0o755)
    reports.mkdir()
    for rank in range(2):  # of more than one, threads make the exports
        (reports / f"rank{rank}.nsys-rep").write_bytes(b"report")
    path = os.pathsep.join([str(nsys.parent), os.environ["PATH"]])
    code_of_run = f"import os; os.environ['PATH'] = {path!r}; from nsys_llm.run import command"
    words = [RECIPE, "--input", str(reports), "--output", str(tmp_path / "out")]
    command = [sys.executable, "-c", f"{code_of_run}; command.main()", *words]
    taken_s, code, said = terminated(command, begun)
    assert (code, said) == (143, "")
    assert taken_s < SOON_S
    assert sorted(os.listdir(tmp_path)) == ["begun", "bin", "reports"]
    assert sorted(os.listdir(reports)) == ["rank0.nsys-rep", "rank1.nsys-rep"]
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(nsys) not in running.stdout
