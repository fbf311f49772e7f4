"""Lateness of ranks: what is certain of it, and ranks that have no steps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from nsys_llm.recipes.step_budget.per_rank.steps import COUNTED
from nsys_llm.recipes.step_budget.tables.ceilings import _stragglers
from nsys_llm.recipes.step_budget.tables.job import Job

NOTHING = np.iinfo(np.int64).min


def job_of(step, edge_ns):
    steps_n = len(edge_ns) - 1
    one_each = np.zeros(steps_n, dtype=np.int64)
    marks = (COUNTED,) * steps_n
    edges = np.array(edge_ns, dtype=np.int64)
    return Job(edges, np.array(step), marks, one_each, one_each, one_each)


@pytest.mark.parametrize("without_n", range(6))
def test_ranks_without_a_step_are_no_median(without_n):
    ends = np.array([[100], [110], [150], *[[NOTHING]] * without_n])
    job = job_of([[0], [0], [0], *[[-1]] * without_n], [0, 150])
    assert job.median_end_ns(ends).tolist() == [110]


def test_a_step_that_no_rank_has_holds_nobody_back():
    job = job_of([[-1], [-1]], [0, 150])
    behind_ns = job.edge_ns[1:] - job.median_end_ns(np.full((2, 1), NOTHING))
    assert (behind_ns <= 0).all()


@pytest.mark.parametrize("without_n", [0, 3])
def test_lateness_of_which_clocks_are_not_sure_is_not_certain(without_n):
    # Rank 1 comes 10, 20 and 40 ns behind; that it is last the second time, no clock is sure.
    meetings = SimpleNamespace(
        last_ns=np.array([100, 200, 400]),
        median_ns=np.array([90, 180, 360]),
        last_rank=np.array([1, 1, 1]),
        is_clear=np.array([1, 0, 1]),
        common_ns=lambda rank, at_ns: at_ns,
    )
    device = SimpleNamespace(edge_ns=np.array([0, 500]))
    rows = [("rank", SimpleNamespace(devices=[device]))] * (2 + without_n)
    paths = SimpleNamespace(
        job=job_of([[0], [0], *[[-1]] * without_n], [0, 500]), rows=rows, walks=[0, 1]
    )
    sums = _stragglers(paths, meetings, [f"rank{place}" for place in range(len(rows))])
    assert [values.tolist() for values in sums["rank1"]] == [[70, 70], [50, 50]]
    others = [values for name, both in sums.items() if name != "rank1" for values in both]
    assert not any(values.any() for values in others)
