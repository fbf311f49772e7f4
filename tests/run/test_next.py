"""What a run prints last: a command to go on with, which runs as it stands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run
from small_ranks import write_small_ranks

PROGRAM = Path(sys.executable).with_name("nsys-llm")


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_small_ranks(tmp_path / "my ranks")


@pytest.mark.skipif(not PROGRAM.exists(), reason="nsys-llm is not installed as a command")
@pytest.mark.slow
def test_the_last_line_is_a_command_that_runs(ranks, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", [str(PROGRAM)])
    for place, known in (("a result", True), (tmp_path.parent / f"{tmp_path.name} out", False)):
        monkeypatch.setattr(shutil, "which", lambda _, known=known: known and "/bin/nsys-llm")
        ended = run("--input", ranks, "--output", place, recipe="idle_gaps")
        label, _, command = ended.printed[-1].partition(": ")
        assert label == "next"
        assert command.startswith("nsys-llm show 'a result'" if known else str(PROGRAM))
        command = command.replace("nsys-llm", str(PROGRAM), 1) if known else command
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.strip()


def test_no_command_is_told_that_is_not_there(ranks, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/nsys"])
    monkeypatch.setattr(shutil, "which", lambda _: None)
    ended = run("--input", ranks, "--output", "out", recipe="idle_gaps")
    assert ended.printed[-2:] == ["Generated:", f"    {Path('out').resolve()}"]
