"""Which steps count: in proportion those that are cut, and no rank's that has none."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pandas as pd
import pytest

from nsys_llm.critical_path.job.meetings import TimedSteps
from nsys_llm.facts.steps.steps import COUNTED
from nsys_llm.report.prices.replays import SpanSteps

LIMITS = np.iinfo(np.int64)


@pytest.mark.parametrize(
    ("marks", "last_ns", "replayed_n"),
    [
        (("", "", "cut"), 30, 2.3),
        # A rest is no longer than a step.
        (("", "", "cut"), 250, 3.0),
        (("cut", "", ""), 100, 3.0),
        (("", "", ""), 100, 3.0),
        (("warm-up", "", "partial"), 30, 1.0),
    ],
)
def test_only_steps_that_are_cut_count_in_proportion(marks, last_ns, replayed_n):
    wall_ns = [100, 100, last_ns]
    tables = {
        "job_steps": pd.DataFrame({"mark": marks, "wall_ns": wall_ns}),
        "rank_edges": pd.DataFrame({"step_unit": ["step"]}),
    }
    mean_ns = fmean(ns for ns, mark in zip(wall_ns, marks, strict=True) if not mark)
    steps = SpanSteps(tables)
    assert steps.replayed_n == pytest.approx(replayed_n)
    assert steps.in_span((0, 0), 50 * last_ns) == pytest.approx(50 * last_ns / mean_ns)
    assert steps.are_span(int(9.9 * replayed_n * mean_ns))
    assert not steps.are_span(int(10.1 * replayed_n * mean_ns))


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
