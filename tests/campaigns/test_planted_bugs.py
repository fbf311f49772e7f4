"""The list of planted bugs fits the code: `tests/mutants/run.py` plants them."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "mutants"))

import run  # noqa: E402

from nsys_llm.manifest.manifest import recipe_names  # noqa: E402

PLANTED = run.planted()


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: f"{bug.recipe}: {bug.says}")
def test_a_planted_bug_fits_one_place_of_the_code_and_names_tests(bug):
    text = (ROOT / bug.file).read_text("utf-8")
    assert text.count(bug.right) == 1
    compile(text.replace(bug.right, bug.wrong), bug.file, "exec")
    assert all((ROOT / "tests" / name).is_file() for name in bug.tests)


@pytest.mark.slow
def test_tests_that_do_not_end_are_ended_with_what_they_started(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_TIMEOUT_S", 5)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_endless.py").write_text(
        "import subprocess\n"
        "def test_endless():\n"
        f"    subprocess.run(['sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 600'])\n"
    )
    code, output = run._tested(tmp_path, ["test_endless.py"])
    assert code == run._NOT_ENDED
    assert output.endswith("no end after 5 s")
    if (tmp_path / "pid").exists():
        with suppress(psutil.NoSuchProcess):  # else it waits for its new parent to notice
            started = psutil.Process(int((tmp_path / "pid").read_text()))
            limit = time.monotonic() + 10
            while started.status() != psutil.STATUS_ZOMBIE:  # the kernel may not be done with it
                assert time.monotonic() < limit
                time.sleep(0.01)


def test_a_bug_whose_tests_do_not_end_is_reported_and_the_next_is_planted(monkeypatch, capsys):
    bugs = [bug for bug in PLANTED if bug.recipe == "step_budget"]
    ends = iter([(0, ""), (run._NOT_ENDED, "no end"), (1, "1 failed")])
    monkeypatch.setattr(run, "planted", lambda: [bugs[0], PLANTED[0]])
    monkeypatch.setattr(run, "_tested", lambda *_: next(ends))
    monkeypatch.setattr(sys, "argv", ["run.py", "--jobs", "1"])
    assert run.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("NOT ENDED") for line in said) == 1
    assert sum(line.startswith("noticed") for line in said) == 1
    assert said[-1] == "1 of 2 planted bugs noticed"


def test_every_recipe_has_planted_bugs():
    assert {bug.recipe for bug in PLANTED} == {"all", *recipe_names()}
