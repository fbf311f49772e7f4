"""Two Nsight Systems side by side: each run exports with the one that it is meant to use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from effort import nightly_but
from results import read_report, under_nsys

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
