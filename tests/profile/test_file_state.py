"""A profile is told from any other that stands in its place."""

from __future__ import annotations

import os
import shutil

import pytest
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ProfileError
from nsys_llm.profile.file_state import refuse_changed
from nsys_llm.profile.inputs import open_profile


def rank(kernels_n, **facts):
    trace = TraceBuilder(**facts)
    for number in range(kernels_n):
        trace.kernel("gemm", start_ns=100 * number, duration_ns=50)
    return trace


@pytest.fixture(params=["sqlite", "parquet"])
def written(request, tmp_path):
    """Write a rank; return its profile and a function that writes another into its place."""

    def write(trace, name):
        path = tmp_path / name
        if request.param == "sqlite":
            return trace.write_sqlite(path.with_suffix(".sqlite"))
        return trace.write_parquet(path.with_name(f"{name}_pqtdir"))

    path = write(rank(3), "rank0")

    def replace(trace):
        other = write(trace, "other")
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(other, path)

    return path, replace


def mark(path):
    with open_profile(str(path), ()) as profile:
        return profile.fingerprint


def test_an_untouched_profile_is_the_same(written):
    path, _ = written
    refuse_changed(path.name, mark(path), mark(path))


@pytest.mark.parametrize("other", [rank(3), rank(4), rank(3, duration_ns=7)])
def test_another_profile_in_its_place_is_refused(written, other):
    path, replace = written
    known = mark(path)
    replace(other)
    with pytest.raises(ProfileError, match=r"changed since it was first read; run again\.$"):
        refuse_changed(path.name, known, mark(path))


def test_a_table_that_another_run_adds_to_an_export_changes_nothing(tmp_path):
    path = rank(3).write_parquet(tmp_path / "rank0_pqtdir")
    known = mark(path)
    shutil.copy(path / "StringIds.parquet", path / "ANOTHER.parquet")
    refuse_changed(path.name, known, mark(path))
