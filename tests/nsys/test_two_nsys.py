"""Two Nsight Systems side by side: each run exports with the one that it is meant to use."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from effort import nightly_but
from results import RECIPE, read_report, run, under_nsys

pytestmark = pytest.mark.traces

#: Another release, which cannot read the report; it is the first on PATH.
OTHER = """#!/bin/sh
echo "Nsight Systems 1999.1: cannot import a report of a newer version" >&2
exit 1
"""


@pytest.fixture
def place(tmp_path, traces) -> Path:
    """A report, and a folder with the other nsys."""
    source = traces / "a100_vector_add" / "vector_add_profile_v2.nsys-rep"
    shutil.copy(source, tmp_path / "rank0.nsys-rep")
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "nsys"
    other.write_text(OTHER)
    other.chmod(0o755)
    return tmp_path


def first_on_path(place: Path) -> str:
    return os.pathsep.join([str(place / "other"), os.environ["PATH"]])


@pytest.mark.parametrize("mode", nightly_but(["none", "concurrent"], ["none"]))
def test_the_nsys_that_runs_the_recipe_exports(nsys, place, mode):
    words = ["--mode", mode, "--input", "rank0.nsys-rep", "--output", "out"]
    done = under_nsys(nsys, place, *words, PATH=first_on_path(place))
    assert done.returncode == 0, done.stdout
    assert read_report(place / "out")["failed"] == {}


def test_a_command_by_itself_takes_the_first_on_path_and_another_if_told(nsys, place):
    command = [sys.executable, "-m", "nsys_llm.run.cli", RECIPE, "--input", "rank0.nsys-rep"]
    done = run([*command, "--output", "out"], place, PATH=first_on_path(place), NSYS_DIR="")
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    assert line.startswith(
        "error: rank0.nsys-rep: nsys export failed (exit 1: Nsight Systems 1999.1"
    )
    assert not (place / "out").exists()
    folder = str(Path(nsys).parents[1])
    done = run([*command, "--output", "out"], place, PATH=first_on_path(place), NSYS_DIR=folder)
    assert done.returncode == 0, done.stdout
