"""Runs for which too few files may be open."""

from __future__ import annotations

import resource

from nsys_llm.core.open_files import raise_limit


def test_a_limit_is_raised_as_far_as_a_run_needs():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (70, before[1]))
    try:
        raise_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == (4096 if hard == resource.RLIM_INFINITY else min(4096, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
