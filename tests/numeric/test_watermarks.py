"""Memory in use, by hand and against a dictionary that is walked event by event."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.numeric.watermarks import (
    NEVER,
    level_at,
    levels,
    matched_frees,
    notable_steps,
)


def array(values):
    return np.array(values, dtype=np.int64)


def test_levels_change_once_an_instant():
    times, level = levels(array([5, 1, 5, 3]), array([-4, 4, 2, 1]))
    assert times.tolist() == [1, 3, 5]
    assert level.tolist() == [4, 5, 3]  # 4; 4 + 1; 5 - 4 + 2
    assert level_at(array([0, 1, 2, 5, 9]), times, level).tolist() == [0, 4, 4, 3, 3]
    assert level_at(array([3]), array([]), array([])).tolist() == [0]


def test_of_each_part_the_highest_and_the_last_step_are_kept():
    # Two parts of [0, 10): 0 to 4 and 5 to 9. Of the equal heights at 1 and 3 the first.
    times, level = array([0, 1, 2, 3, 4, 5, 6, 9]), array([1, 7, 2, 7, 3, 4, 9, 9])
    kept = notable_steps(times, level, 2)
    assert times[kept].tolist() == [1, 4, 6, 9]
    assert notable_steps(array([]), array([]), 2).size == 0


EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 9)), min_size=1, max_size=40
)


@given(events=EVENTS)
def test_levels_are_those_of_a_dictionary_of_live_memory(events):
    address = array([event[0] for event in events])
    is_free = np.array([event[1] for event in events])
    size = array([event[2] for event in events])
    at = np.arange(len(events), dtype=np.int64)
    live, expected, orphans = {}, [], []
    for where, free, bytes_n in events:
        orphans.append(free and where not in live)
        if free:
            live.pop(where, None)
        else:
            live[where] = bytes_n
        expected.append(sum(live.values()))
    ended_by, unmatched = matched_frees(address, at, is_free)
    begun, ended = ~is_free, ended_by != NEVER
    times, level = levels(
        np.concatenate((at[begun], at[ended_by[ended]])),
        np.concatenate((size[begun], -size[ended])),
    )
    assert level_at(at, times, level).tolist() == expected
    assert unmatched.tolist() == orphans


@given(level=st.lists(st.integers(0, 99), min_size=1, max_size=60), bins=st.integers(1, 8))
def test_the_highest_level_is_kept_and_the_steps_are_few(level, bins):
    times = np.arange(len(level), dtype=np.int64)
    kept = notable_steps(times, array(level), bins)
    assert kept.size <= 2 * bins
    assert array(level)[kept].max() == max(level)
    assert kept[-1] == len(level) - 1
