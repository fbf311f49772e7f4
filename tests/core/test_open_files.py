"""Runs for which too few files may be open."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nsys_llm.core.open_files import raise_limit

resource = pytest.importorskip("resource")


def test_a_limit_is_raised_as_far_as_a_run_needs():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (70, before[1]))
    try:
        raise_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == (4096 if hard == resource.RLIM_INFINITY else min(4096, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("limit", [14, 255])
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
