"""Causes: which of them are the same."""

from __future__ import annotations

import pytest

from nsys_llm.report.causes import Cause


@pytest.mark.parametrize("kind", ["kernels", "copies", "wait"])
def test_a_detail_that_says_which_thing_tells_causes_apart(kind):
    assert Cause(kind, detail="a") != Cause(kind, detail="b")


def test_a_rank_is_one_cause_whether_or_not_its_kernel_is_known():
    named, unnamed = Cause("rank", rank=2, note="more_work"), Cause("rank", rank=2)
    assert named == unnamed
    assert len({named, unnamed}) == 1
    assert unnamed != Cause("rank", rank=3)


def test_a_host_of_one_rank_is_not_that_of_all():
    assert Cause("host", rank=1) != Cause("host")
