"""Temporary folders: those of runs that may still work stay, those of killed runs go."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from nsys_llm.core.scratch import alone_in, remove_abandoned, scratch_folder, scratch_place

DAY_S = 24 * 3600


def left(parent: Path, age_s: float) -> Path:
    """Make a folder that a killed run has left, with a file in it."""
    folder = scratch_place(parent, "out")
    folder.mkdir()
    (folder / "half.parquet").write_text("half")
    os.utime(folder, (time.time() - age_s,) * 2)
    return folder


def test_a_folder_goes_with_its_block_and_one_that_is_worked_in_stays(tmp_path):
    with scratch_folder(tmp_path, "out") as first, scratch_folder(tmp_path, "out") as second:
        assert first.is_dir()
        assert second.is_dir()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("age_s", "stays"), [(0, True), (DAY_S - 60, True), (DAY_S + 60, False)])
def test_what_a_killed_run_left_goes_after_a_day(tmp_path, age_s, stays):
    folder = left(tmp_path, age_s)
    with scratch_folder(tmp_path, "out"):
        assert folder.exists() == stays


def test_links_and_names_that_only_look_alike_stay(tmp_path):
    folder = left(tmp_path, 2 * DAY_S)
    precious = tmp_path / "precious"
    precious.mkdir()
    link = folder.with_name(f"{folder.name[:-8]}abcdefgh")
    link.symlink_to(precious)
    longer = folder.rename(folder.with_name(f"{folder.name}x"))
    for name in ("ou", "out2", "t", "", "out"):
        remove_abandoned(tmp_path, name)
    assert sorted(os.listdir(tmp_path)) == sorted(["precious", link.name, longer.name])


def test_who_is_alone_in_a_folder_keeps_others_out_and_needs_no_folder(tmp_path):
    entered = threading.Event()

    def visit() -> None:
        with alone_in(tmp_path):
            entered.set()

    with alone_in(tmp_path), alone_in(tmp_path / "gone"):
        threading.Thread(target=visit, daemon=True).start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
