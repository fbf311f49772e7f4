"""Temporary folders: those of runs that still work stay, those of killed runs go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nsys_llm.core.scratch import (
    abandoned,
    alone_in,
    hold,
    made_folder,
    remove_abandoned,
    scratch_folder,
    scratch_place,
)

#: Makes a folder, tells its name, and waits to be killed.
WORKER = """
import sys, time
from pathlib import Path
from nsys_llm.core.scratch import made_folder, scratch_place
folder = scratch_place(Path(sys.argv[1]), "out")
held = made_folder(folder)
(folder / "half.parquet").write_text("half")
print(folder.name, flush=True)
time.sleep(600)
"""

#: Makes a folder, forks a child that goes on, and is killed.
FORKING_WORKER = """
import os, signal, sys, time
from pathlib import Path
from nsys_llm.core.scratch import made_folder, scratch_place
folder = scratch_place(Path(sys.argv[1]), "out")
held = made_folder(folder)
if (child := os.fork()) == 0:
    os.close(1)
    time.sleep(600)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

#: Forks a child that goes on while it is alone in a folder, and leaves the folder.
FORKING_VISITOR = """
import os, sys, time
from pathlib import Path
from nsys_llm.core.scratch import alone_in
with alone_in(Path(sys.argv[1])):
    if (child := os.fork()) == 0:
        os.close(1)
        time.sleep(600)
print(child, flush=True)
"""


@pytest.fixture
def killed(tmp_path) -> Path:
    """A folder that a killed process has left, with a file in it."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, tmp_path], stdout=subprocess.PIPE, text=True
    )
    with worker:
        name = worker.stdout.readline().strip()
        remove_abandoned(tmp_path, "out")
        assert os.listdir(tmp_path / name) == ["half.parquet"]
        worker.send_signal(signal.SIGKILL)
    return tmp_path / name


def test_a_folder_goes_with_its_block_and_one_that_is_worked_in_stays(tmp_path):
    with (
        scratch_folder(tmp_path, "out") as (first, _),
        scratch_folder(tmp_path, "out") as (second, _),
    ):
        assert first.is_dir()
        assert second.is_dir()
    assert os.listdir(tmp_path) == []


def test_what_a_killed_run_left_goes_when_the_next_one_begins(killed, tmp_path):
    with scratch_folder(tmp_path, "out") as (folder, _):
        assert os.listdir(tmp_path) == [folder.name]
    assert not killed.exists()


def test_what_was_left_of_another_name_stays(killed, tmp_path):
    for name in ("ou", "out2", "t", ""):
        remove_abandoned(tmp_path, name)
    assert killed.exists()


def test_a_child_that_works_in_the_folder_holds_it_too(tmp_path):
    folder = scratch_place(tmp_path, "out")
    held = made_folder(folder)
    with subprocess.Popen(["sleep", "600"], pass_fds=(held.descriptor,)) as child:
        held.release()
        remove_abandoned(tmp_path, "out")
        assert folder.is_dir()
        child.kill()
    remove_abandoned(tmp_path, "out")
    assert os.listdir(tmp_path) == []


def test_links_and_names_that_only_look_alike_stay(killed, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "mine.txt").write_text("mine")
    link = killed.with_name(f"{killed.name[:-8]}abcdefgh")
    link.symlink_to(precious)
    longer = killed.with_name(f"{killed.name}x")
    longer.mkdir()
    elsewhere = killed.with_name(killed.name.replace("partial-", "partial-0"))
    elsewhere.mkdir()
    remove_abandoned(tmp_path, "out")
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["precious", link.name, longer.name, elsewhere.name]
    )
    assert (precious / "mine.txt").read_text() == "mine"


def test_forked_children_of_a_killed_run_hold_nothing(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", FORKING_WORKER, tmp_path], stdout=subprocess.PIPE, text=True
    ) as worker:
        child = int(worker.stdout.readline())
    assert worker.returncode == -signal.SIGKILL
    try:
        limit = time.monotonic() + 10
        while os.listdir(tmp_path) and time.monotonic() < limit:
            remove_abandoned(tmp_path, "out")
        assert os.listdir(tmp_path) == []
        os.kill(child, 0)  # it still runs
    finally:
        os.kill(child, signal.SIGKILL)


def test_forked_children_of_who_was_alone_in_a_folder_keep_nobody_out(tmp_path):
    command = [sys.executable, "-c", FORKING_VISITOR, tmp_path]
    child = int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    try:
        limit, held = time.monotonic() + 10, None
        while held is None and time.monotonic() < limit:
            held = hold(tmp_path)
        assert held is not None
        held.release()
        os.kill(child, 0)  # it still runs
    finally:
        os.kill(child, signal.SIGKILL)


def test_who_is_alone_in_a_folder_keeps_others_out_and_needs_no_folder(tmp_path):
    with alone_in(tmp_path), alone_in(tmp_path / "gone"):
        assert hold(tmp_path) is None
    held = hold(tmp_path)
    assert held is not None
    held.release()


def test_a_folder_that_is_gone_cannot_be_held(tmp_path):
    assert hold(tmp_path / "gone") is None
    assert list(abandoned(tmp_path / "gone", "out")) == []


def test_where_folders_cannot_be_locked_nothing_is_removed(killed, tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("nsys_llm.core.scratch.fcntl.flock", refuse)
    with scratch_folder(tmp_path, "out") as (folder, held):
        assert held.descriptor is None
        assert sorted(os.listdir(tmp_path)) == sorted([killed.name, folder.name])
    assert killed.exists()


def test_a_lock_ends_with_the_process_at_once(tmp_path):
    begun = time.monotonic()
    folder = scratch_place(tmp_path, "out")
    held = made_folder(folder)
    held.release()
    again = hold(folder)
    assert again is not None
    again.release()
    assert time.monotonic() - begun < 5
