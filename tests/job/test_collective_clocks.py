"""Offsets of clocks out of ends of collectives, planted to the nanosecond."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.job.collectives.clocks import ClockFit, Meeting, fit_clocks, residual_ns
from nsys_llm.numeric.clock_lines import ClockLine


def meeting(*ends, clock=None):
    clocks = tuple(range(len(ends))) if clock is None else clock
    return Meeting(clocks, tuple(np.array(lane_ends, dtype=np.int64) for lane_ends in ends))


def test_of_an_even_number_the_lower_median_counts_so_that_a_shift_is_found_exactly():
    fits = fit_clocks([meeting([0, 0], [3, 8])], 2)
    assert fits[1].offset_ns == 3
    moved = fit_clocks([meeting([0, 0], [3 + 10**9, 8 + 10**9])], 2)
    assert moved[1].offset_ns == 3 + 10**9
    assert moved[1].residual_ns == fits[1].residual_ns


def test_ranks_of_one_report_have_one_offset():
    # Reports 0 (two ranks, lower median 10 and 20) and 1 (one rank): 4 and 4 apart.
    fits = fit_clocks([meeting([10, 20], [12, 23], [14, 24], clock=(0, 0, 1))], 2)
    assert [fit.offset_ns for fit in fits] == [0, 4]
    assert residual_ns(meeting([10, 20], [12, 23], clock=(0, 0)), [ClockLine(0)]) == 0


def test_reports_that_never_meet_are_linked_through_a_third():
    # 0 and 1 differ by 6, to 1 ns; 1 and 2 by 7, to 1 ns; 4 is 5 ahead of 0 and 7 ahead of 3.
    links = [meeting([0, 10, 20], [5, 17, 26], clock=(0, 1))]
    links += [meeting([0, 10, 20], [6, 17, 28], clock=(1, 2))]
    links += [meeting([0, 10, 20], [5, 15, 25], clock=(0, 4))]
    links += [meeting([0, 10, 20], [7, 17, 27], clock=(3, 4))]
    assert fit_clocks(links, 6) == [
        ClockFit(0, 0, 0, 0),
        ClockFit(6, 1, 3, 0),
        ClockFit(6 + 7, 1 + 1, 3, 0),
        ClockFit(5 - 7, 0, 3, 0),
        ClockFit(5, 0, 3, 0),
        ClockFit(0, 0, 0, 5),  # meets nobody
    ]


def test_the_surer_of_two_links_is_taken():
    rough = meeting([0, 10, 20], [90, 110, 180], clock=(0, 1))
    fine = meeting([0, 10, 20], [100, 111, 119], clock=(0, 1))
    for order in ([rough, fine], [fine, rough]):
        assert fit_clocks(order, 2)[1].offset_ns == 100
    # Two collectives that agree by chance do not outweigh three.
    few = meeting([0, 10], [70, 80], clock=(0, 1))
    assert fit_clocks([few, fine], 2)[1].offset_ns == 100


def test_the_residual_is_that_of_the_worst_report():
    ends = meeting([0, 10, 20], [100, 110, 120], [203, 208, 217])
    # Report 2 minus 200: 3, 8 and 17 against 0, 10 and 20, so 3, 2 and 3 apart.
    assert residual_ns(ends, [ClockLine(at) for at in (0, 100, 200)]) == 3


def test_the_order_of_meetings_changes_nothing():
    rng = np.random.default_rng(2)
    truth = rng.integers(-(10**9), 10**9, 6)
    meetings = []
    for _ in range(12):
        clocks = tuple(sorted(rng.choice(6, 3, replace=False).tolist()))
        at = np.sort(rng.integers(0, 10**6, 9))
        ends = [at + truth[clock] + rng.integers(0, 5, 9) for clock in clocks]
        meetings.append(meeting(*ends, clock=clocks))
    expected = fit_clocks(meetings, 6)
    assert all(abs(fit.offset_ns - (truth[i] - truth[0])) < 15 for i, fit in enumerate(expected))
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(meetings))
        assert fit_clocks([meetings[place] for place in order], 6) == expected


@pytest.mark.parametrize("meetings", [[], [meeting([], [])]])
def test_without_collectives_each_clock_is_its_own_measure(meetings):
    assert fit_clocks(meetings, 2) == [ClockFit(0, 0, 0, 0), ClockFit(0, 0, 0, 1)]
