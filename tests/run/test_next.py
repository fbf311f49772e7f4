"""What a run prints last: a command to go on with, which runs as it stands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run
from small_ranks import write_small_ranks

from nsys_llm.core.errors import ExitCode
from nsys_llm.run.guard import RunOutcome

PROGRAM = Path(sys.executable).with_name("nsys-llm")


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_small_ranks(tmp_path / "my ranks")


@pytest.mark.skipif(not PROGRAM.exists(), reason="nsys-llm is not installed as a command")
@pytest.mark.slow
def test_the_last_line_is_a_command_that_runs(ranks, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", [str(PROGRAM)])
    monkeypatch.setattr(shutil, "which", lambda _: None)
    ended = run("--input", ranks, "--output", "a result", recipe="idle_gaps")
    label, _, command = ended.printed[-1].partition(": ")
    assert label == "next"
    assert command.startswith(f"{PROGRAM} show 'a result'")
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_no_command_is_told_that_is_not_there(ranks, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/nsys"])
    monkeypatch.setattr(shutil, "which", lambda _: None)
    ended = run("--input", ranks, "--output", "out", recipe="idle_gaps")
    assert ended.printed[-2:] == ["Generated:", f"    {Path('out').resolve()}"]


def test_a_program_that_was_typed_with_its_folder_is_told_so(monkeypatch):
    outcome = RunOutcome(ExitCode.DONE, Path("out").resolve(), (), 1)
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/nsys-llm")
    for typed, said in (
        (".venv/bin/nsys-llm", ".venv/bin/nsys-llm"),
        ("/bin/nsys-llm", "nsys-llm"),
    ):
        monkeypatch.setattr(sys, "argv", [typed])
        assert outcome.next_line == (f"next: {said} show out 1",)
