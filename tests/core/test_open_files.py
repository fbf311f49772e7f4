"""Runs for which too few files may be open."""

from __future__ import annotations

import errno
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, ProfileError, UsageError
from nsys_llm.core.open_files import (
    OutOfFilesTold,
    is_out_of_files,
    no_more_open_files,
    raise_limit,
)
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.profile.inputs import ProfileInput, open_profile
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.run.boundary import Boundary
from nsys_llm.run.guard import RunOutcome, run_guarded
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
        held = all_opened()
        for descriptor in held[:spare]:
            os.close(descriptor)
        for descriptor in held[spare:]:
            opened.callback(os.close, descriptor)
        yield


def all_opened() -> list[int]:
    """Open what can be opened."""
    held = []
    while True:
        try:
            held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return held


def test_a_limit_is_raised_as_far_as_a_run_needs():
    with limited(70):
        raise_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == (4096 if hard == resource.RLIM_INFINITY else min(4096, hard))
        assert soft > 70


@pytest.mark.parametrize("limit", [14, 63, 255])
def test_too_low_a_limit_is_one_line(tmp_path, limit):
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    command = [sys.executable, "-m", "nsys_llm.run.command", "idle_gaps", "--input", str(tmp_path)]
    ended = subprocess.run(command, preexec_fn=lower, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"error: only {limit} files may be open at a time, and a run needs 256; raise the "
        "limit (ulimit -n).\n"
    )


def read(profile: ProfileInput) -> None:
    reads = load_manifest("idle_gaps").reads
    with open_profile(profile.path, needed_tables(reads, {})) as opened:
        read_trace(opened, reads, {})


def lines_told(profile: ProfileInput, most_spare: int) -> list[str]:
    """Read a profile with 0, 1, ... files to spare; return what ended the run, once for each."""
    read(profile)  # whatever is imported for it is there now
    told = []
    for spare in range(most_spare):
        with all_open_but(spare):
            try:
                with Boundary(profile) as boundary:
                    read(profile)
            except UsageError as error:
                told.append(error.message)
                continue
        assert boundary.failure is None, (spare, boundary.failure)
    return told


@pytest.mark.parametrize("form", ["sqlite", "parquet"])
def test_no_profile_is_blamed_where_no_file_can_be_opened(tmp_path, form):
    path = tmp_path / ("rank0.sqlite" if form == "sqlite" else "rank0_pqtdir")
    builder = TraceBuilder().process(pid=1)
    for start_ns in range(0, 20_000, 10):
        builder.kernel("gemm", start_ns=start_ns, duration_ns=5)
    getattr(builder, f"write_{form}")(path)
    told = lines_told(ProfileInput(str(path), "rank0"), 12)
    assert 0 < len(told) < 12
    here = f"needs more open files than the 256 allowed on {socket.gethostname()};"
    assert all(line.startswith(here) for line in told)


def test_an_export_beside_a_report_is_not_taken_for_a_damaged_one(tmp_path):
    TraceBuilder().process(pid=1).write_parquet(tmp_path / "rank0_pqtdir")
    report = tmp_path / "rank0.nsys-rep"
    report.write_bytes(b"x")
    os.utime(report, (0, 0))
    assert lines_told(ProfileInput(str(report), "rank0"), 6)


def test_a_line_can_be_said_when_no_file_can_be_opened(capfd):
    Console().error("first")
    with all_open_but(0):
        Console().error("needs more open files")
    assert capfd.readouterr().err == "error: first\nerror: needs more open files\n"


def test_the_python_interface_says_the_same():
    with pytest.raises(UsageError, match="needs more open files"), OutOfFilesTold():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE), "pandas_compat.py"),
        OSError(errno.ENFILE, os.strerror(errno.ENFILE)),
        ImportError(f"lib.so: cannot open shared object file: {os.strerror(errno.EMFILE)}"),
    ],
)
def test_a_want_of_open_files_is_known_behind_other_errors(error):
    assert is_out_of_files(error)
    outer = ProfileError("rank2.sqlite: cannot be read")
    outer.__cause__ = error
    assert is_out_of_files(outer)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full"),
        ProfileError(f"a: {os.strerror(errno.EMFILE)}"),
        OSError(errno.ENOENT, "No such file", f"a: {os.strerror(errno.EMFILE)}"),
        KeyError(f"a: {os.strerror(errno.EMFILE)}"),
    ],
)
def test_errors_that_quote_a_name_are_others(error):
    assert not is_out_of_files(error)


def test_a_worker_that_has_too_few_is_taken_at_its_word(capsys):
    with limited(100):
        told = no_more_open_files(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    there = pickle.loads(pickle.dumps(told))
    there.__cause__ = OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def run() -> RunOutcome:
        raise there

    assert run_guarded(Console(), run).exit_code == ExitCode.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: {told.message}"
    assert f" than the 100 allowed on {socket.gethostname()}; " in line


def test_causes_that_lead_back_to_each_other_end():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert not is_out_of_files(first)
