"""Windows of a timeline: all that fits, the shortest first, and an exact count of the rest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from effort import over_seeds

from nsys_llm.facts.timeline.rank_timeline import windows_with_room


def _inside(at_ns, windows):
    return sum(any(start <= at < end for start, end in windows) for at in at_ns.tolist())


def _random(seed):
    rng = np.random.default_rng(seed)
    at_ns = rng.integers(0, 100, rng.integers(0, 60))
    weight = rng.integers(1, 9, at_ns.size)
    start_ns = rng.integers(0, 100, rng.integers(1, 6))
    wanted = [(int(at), int(at + rng.integers(1, 50))) for at in start_ns]
    return wanted, at_ns, weight, int(rng.integers(0, 200))


@over_seeds(range(300))
def test_what_is_taken_fits_and_what_is_not_is_counted(seed):
    wanted, at_ns, weight, most = _random(seed)
    room = windows_with_room(wanted, at_ns, weight, most)
    taken = room.windows_ns.tolist()
    inside = np.array(
        [any(start <= at < end for start, end in taken) for at in at_ns.tolist()], dtype=bool
    )
    assert weight[inside].sum() <= most
    assert all(before[1] < after[0] for before, after in pairwise(taken))
    covered = {at for start, end in wanted for at in range(start, end)}
    assert {at for start, end in taken for at in range(start, end)} <= covered
    assert room.left_out_n == _inside(at_ns, wanted) - inside.sum()


@over_seeds(range(100))
def test_with_room_for_all_the_union_is_taken(seed):
    wanted, at_ns, weight, _ = _random(seed)
    room = windows_with_room(wanted, at_ns, weight, int(weight.sum()))
    taken = {at for start, end in room.windows_ns.tolist() for at in range(start, end)}
    assert taken == {at for start, end in wanted for at in range(start, end)}
    assert room.left_out_n == 0


def test_a_short_window_stands_before_a_long_one_which_is_cut():
    at_ns = np.arange(100)
    room = windows_with_room([(0, 100), (90, 95)], at_ns, np.ones_like(at_ns), 20)
    assert room.windows_ns.tolist() == [[0, 15], [90, 95]]
    assert room.left_out_n == 80


@pytest.mark.parametrize("most", [0, -1, -1_000])
def test_where_others_took_more_than_there_was_nothing_fits(most):
    at_ns = np.array([100, 150, 1_000])
    room = windows_with_room([(100, 200)], at_ns, np.ones_like(at_ns), most)
    inside = [any(low <= at < high for low, high in room.windows_ns) for at in at_ns]
    assert not any(inside)
    assert all(100 <= low <= high <= 200 for low, high in room.windows_ns.tolist())
    assert room.left_out_n == 2
