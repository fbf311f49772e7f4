"""Runs for which too few files may be open."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from nsys_llm.core.errors import ReportError, UsageError
from nsys_llm.core.open_files import allow_open_files, is_want_of_open_files
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.profile.inputs import ProfileInput, open_report
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.run.boundary import Boundary
from nsys_llm.testing.trace_builder import TraceBuilder

resource = pytest.importorskip("resource")


@contextmanager
def limited(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def all_open_but(spare: int) -> Iterator[None]:
    """Leave so many files to be opened."""
    with limited(256), ExitStack() as opened:
        held = []
        while True:
            try:
                held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        for descriptor in held[:spare]:
            os.close(descriptor)
        for descriptor in held[spare:]:
            opened.callback(os.close, descriptor)
        yield


def test_a_limit_is_raised_as_far_as_a_run_needs():
    with limited(70):
        allow_open_files()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == (4096 if hard == resource.RLIM_INFINITY else min(4096, hard))
        assert soft > 70


def test_a_higher_limit_stays():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 5000:
        pytest.skip("this system allows fewer files")
    with limited(5000):
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (5000, hard)


@pytest.mark.parametrize("limit", [10, 14, 20, 40, 63])
def test_too_low_a_limit_is_one_line(tmp_path, limit):
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    command = [sys.executable, "-m", "nsys_llm.run.command", "idle_gaps", "--input", str(tmp_path)]
    ended = subprocess.run(command, preexec_fn=lower, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"error: only {limit} files may be open at a time, and a run needs 64; raise the limit "
        "(ulimit -n).\n"
    )


def read(profile: ProfileInput) -> None:
    reads = load_manifest("idle_gaps").reads
    with open_report(profile.path, needed_tables(reads, {})) as opened:
        read_trace(opened, reads, {})


@pytest.mark.parametrize("form", ["sqlite", "parquet"])
def test_no_profile_is_blamed_for_a_full_table_of_files(tmp_path, form):
    path = tmp_path / ("rank0.sqlite" if form == "sqlite" else "rank0_pqtdir")
    builder = TraceBuilder().process(pid=1)
    for start_ns in range(0, 20_000, 10):
        builder.kernel("gemm", start_ns=start_ns, duration_ns=5)
    getattr(builder, f"write_{form}")(path)
    profile = ProfileInput(str(path), "rank0")
    read(profile)  # whatever is imported for it is there now
    told = set()
    for spare in range(12):
        with all_open_but(spare):
            try:
                with Boundary(profile) as boundary:
                    read(profile)
            except UsageError as error:
                told.add(error.message)
                continue
        if boundary.failure is not None:
            told.add(boundary.failure.reason)
    assert told
    assert all("(ulimit -n)" in line for line in told), told
    assert any(line.startswith("needs more open files than the 256 allowed;") for line in told)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE), "pandas_compat.py"),
        OSError(errno.ENFILE, os.strerror(errno.ENFILE)),
        ImportError(f"lib.so: cannot open shared object file: {os.strerror(errno.EMFILE)}"),
    ],
)
def test_a_want_of_open_files_is_known_behind_other_errors(error):
    assert is_want_of_open_files(error)
    outer = ReportError("rank2.sqlite: cannot be read")
    outer.__cause__ = error
    assert is_want_of_open_files(outer)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), ReportError("truncated")])
def test_other_errors_are_none(error):
    assert not is_want_of_open_files(error)
