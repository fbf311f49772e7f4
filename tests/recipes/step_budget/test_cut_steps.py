"""Of how many steps of a GPU's span a gain is: those that count, and in proportion cut ones."""

from __future__ import annotations

import pandas as pd
import pytest

from nsys_llm.report.prices.steps import SpanSteps
from nsys_llm.report.walls import Walls


def frames(*, begins, marks=("", "", "cut"), ends_ns=(1000, 1100, 1200, 1230), span=(950, 1230)):
    """Return tables of a GPU; steps lie between ends."""
    steps = pd.DataFrame({"start_ns": ends_ns[:-1], "end_ns": ends_ns[1:], "mark": marks})
    times = steps["end_ns"] - steps["start_ns"]
    wall = {"span_start_ns": span[0], "span_end_ns": span[1], "span_ns": span[1] - span[0]}
    gpu = {"file": "rank0", "rank": 0, "device_id": 0}
    wall |= {"wall_class": "compute", "detail": None, "time_ns": wall["span_ns"]}
    return {
        "device_steps": steps.assign(**gpu, window_ns=times),
        "job_steps": steps.assign(wall_ns=times),
        "wall": pd.DataFrame([{**gpu, **wall}]),
        "rank_edges": pd.DataFrame([{"rank": 0, "begins_in_step": begins, "step_unit": "step"}]),
    }


@pytest.mark.parametrize(
    ("rows", "cut_ns"),
    [
        (frames(begins=False), 30),
        (frames(begins=True), 80),
        # A rest is no longer than a step, nor is what comes before the first.
        (frames(begins=True, ends_ns=(1000, 1100, 1200, 1450), span=(800, 1450)), 200),
        (frames(begins=True, marks=("", "", "")), 50),
        (frames(begins=True, marks=("warm-up", "", "partial")), 50),
        # A filter ends the span within the cut step.
        (frames(begins=False, span=(1000, 1210)), 10),
        (frames(begins=True, span=(1050, 1240)), 30),
    ],
)
def test_only_steps_that_are_cut_count_in_proportion(rows, cut_ns):
    steps = SpanSteps.of(rows, Walls(rows))
    assert steps.cut_ns == {(0, 0): cut_ns}
    counted = rows["job_steps"][rows["job_steps"]["mark"] == ""]["wall_ns"]
    span_ns = int(rows["wall"]["span_ns"].iloc[0])
    most_n = max(span_ns / counted.mean(), len(counted))
    assert steps.replayed((0, 0), span_ns) == min(len(counted) + cut_ns / counted.mean(), most_n)
