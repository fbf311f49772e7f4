"""When steps end on the median rank, of ranks of which some have no steps."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.critical_path.job.meetings import TimedSteps
from nsys_llm.facts.steps.steps import COUNTED

NOTHING = np.iinfo(np.int64).min


def job_of(step, edge_ns):
    steps_n = len(edge_ns) - 1
    one_each = np.zeros(steps_n, dtype=np.int64)
    marks = (COUNTED,) * steps_n
    edges = np.array(edge_ns, dtype=np.int64)
    return TimedSteps(edges, np.array(step), marks, one_each, one_each, one_each)


@pytest.mark.parametrize("without_n", range(6))
def test_ranks_without_a_step_are_no_median(without_n):
    ends = np.array([[100], [110], [150], *[[NOTHING]] * without_n])
    job = job_of([[0], [0], [0], *[[-1]] * without_n], [0, 150])
    assert job.median_end_ns(ends).tolist() == [110]


def test_a_step_that_no_rank_has_holds_nobody_back():
    job = job_of([[-1], [-1]], [0, 150])
    behind_ns = job.edge_ns[1:] - job.median_end_ns(np.full((2, 1), NOTHING))
    assert (behind_ns <= 0).all()
