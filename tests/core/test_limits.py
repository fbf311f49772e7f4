"""Runs for which the system has too few files, or too little memory."""

import resource
import subprocess
import sys

import pytest

from nsys_llm.core.limits import require_limits


def test_a_limit_is_raised_as_far_as_a_run_needs():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (70, before[1]))
    try:
        require_limits()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == (4096 if hard == resource.RLIM_INFINITY else min(4096, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("-n 7", "only 7 files may be open at a time, and a run needs 32"),
        ("-v 60000", "only 58 MB of address space may be used, and a run needs 512"),
    ],
)
def test_too_small_a_limit_is_told_in_one_line(tmp_path, limit, said):
    command = f"ulimit {limit}; {sys.executable} -m nsys_llm.run.cli idle_gaps {tmp_path}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.startswith(f"error: {said}")) == (2, True), line
