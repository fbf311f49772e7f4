"""Where an opportunity is marked: on what it is about, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.facts.timeline.segments import LaneSegments
from nsys_llm.facts.timeline.step_lanes import LaneWindow, StepLane
from nsys_llm.recipes.llm_overview.tables.marks import marks_of
from nsys_llm.recipes.llm_overview.tables.views import GpuLane, View

STATES = ("gemm", "norm", "memory", "transfer", "waiting", "pipeline bubble", "host_sync", "queued")
VIEW = View(1, "a step", "median", 0, 1_000, 2_000)


class Number:
    def __init__(self, number):
        self.number = number


class Clocks:
    """Rank 1 is 50 ns behind."""

    def own_ns(self, rank, common_ns):
        return common_ns - 50 * rank.number


def lane(rank, *states):
    """Return a lane of segments of 100 ns each."""
    n, start_ns = len(states), 1_000 - 50 * rank + 100 * np.arange(len(states))
    code = np.array([STATES.index(state) for state in states])
    none = np.zeros(n, dtype=np.int64)
    segments = LaneSegments(start_ns, start_ns + 100, code, none, none + 1, none, none)
    window = LaneWindow(1, 0, 1_000 - 50 * rank, 2_000 - 50 * rank, 1, {})
    return GpuLane(Number(rank), 0, f"rank{rank}"), StepLane(window, STATES, (), segments)


BOTH = (
    lane(0, "gemm", "norm", "memory", "gemm", "transfer", "queued"),
    lane(1, "gemm", "host_sync", "norm", "waiting", "host_sync", "memory"),
)


WINDOW = {"window_start_ns": 1_200, "window_end_ns": 1_300}


def marked(**given):
    row = {"opportunity": 1, "title": "t", "severity": "high", "rank": 1, "device_id": 0}
    row |= {
        "cause": None,
        "cause_rank": None,
        "cause_detail": None,
        "window_start_ns": None,
        "window_end_ns": None,
    }
    marks = marks_of(VIEW, BOTH, [{**row, **given}], Clocks())
    return [(mark.gpu.rank.number, mark.start_ns, mark.end_ns) for mark in marks]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"cause": "kernels", "cause_detail": "pointwise"}, [(1, 1_150, 1_250), (1, 1_450, 1_550)]),
        ({"cause": "kernels", "cause_detail": "pointwise", "rank": 0}, [(0, 1_100, 1_300)]),
        ({"cause": "kernels", "cause_detail": "gemm"}, [(1, 950, 1_050)]),
        ({"cause": "transfer", "rank": 0}, [(0, 1_400, 1_500)]),
        ({"cause": "queued", "rank": 0}, [(0, 1_500, 1_600)]),
        ({"cause": "wait"}, [(1, 1_050, 1_150), (1, 1_350, 1_450)]),
        ({"cause": "host"}, [(1, 1_050, 1_150), (1, 1_350, 1_450)]),
        # Nothing of it on this rank.
        ({"cause": "transfer"}, []),
        # What is known by a rank alone is all of its lane, whoever gains.
        ({"cause": "rank", "cause_rank": 0}, [(0, 1_000, 2_000)]),
        ({"cause": "rank", "cause_rank": 0, **WINDOW}, [(0, 1_000, 2_000)]),
        ({"cause": "rank", "cause_rank": 0, **WINDOW, "opportunity": 2}, [(1, 1_200, 1_300)]),
        ({"cause": "place", "cause_detail": "decode"}, [(1, 950, 1_950)]),
        # A window is cut to what is shown.
        ({"window_start_ns": 1_900, "window_end_ns": 5_000}, [(1, 1_900, 1_950)]),
        ({"window_start_ns": 1_950, "window_end_ns": 5_000}, []),
        ({"opportunity": 2, "cause": "kernels", "cause_detail": "gemm"}, []),
        ({"opportunity": 2, "window_start_ns": 0, "window_end_ns": 960}, [(1, 950, 960)]),
        ({"rank": None}, []),
        ({"rank": 7}, []),
    ],
)  # fmt: skip
def test_marks(given, wanted):
    assert marked(**given) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        # Which kernels or what idle time it is about cannot be seen.
        ({"cause": "kernels", "cause_detail": "pointwise"}, []),
        ({"cause": "wait", "cause_detail": "cudaStreamSynchronize"}, []),
        ({"cause": "place", "cause_detail": "decode"}, []),
        # What tables alone say.
        ({"cause": "rank", "cause_rank": 1}, [(1, 950, 1_950)]),
        ({"window_start_ns": 1_900, "window_end_ns": 5_000}, [(1, 1_900, 1_950)]),
    ],
)
def test_a_lane_that_was_lost_is_marked_only_where_tables_say(monkeypatch, given, wanted):
    monkeypatch.setitem(globals(), "BOTH", [(gpu, None) for gpu, _ in BOTH])
    assert marked(**given) == wanted
