"""When steps end on the median rank, of ranks of which some have no steps."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.critical_path.job.meetings import TimedSteps
from nsys_llm.facts.steps.steps import COUNTED

LIMITS = np.iinfo(np.int64)


@pytest.mark.parametrize(
    ("ends_ns", "median_ns"),
    [
        *(([100, 110, 150, *[LIMITS.min] * n], 110) for n in (0, 1, 5)),
        # A step that no rank has holds nobody back.
        ([LIMITS.min] * 2, LIMITS.max),
    ],
)
def test_ranks_without_a_step_are_no_median(ends_ns, median_ns):
    ends, one = np.array(ends_ns)[:, None], np.zeros(1, dtype=np.int64)
    step = np.where(ends == LIMITS.min, -1, 0)
    job = TimedSteps(np.array([0, 150]), step, (COUNTED,), one, one, one)
    assert job.median_end_ns(ends).tolist() == [median_ns]
