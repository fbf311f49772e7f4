"""Time on a core, out of switches: by hand, and instant by instant."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.analyses.host.states import HostRecords, spans_on_core
from nsys_llm.profile.tables import Table
from nsys_llm.trace.rank_trace import RankTrace

SWITCHES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1)), min_size=1, max_size=9)


def records_of(tables):
    return HostRecords(RankTrace(tables, {}, None, {}, ()))


def on_core(switches, start_ns, end_ns, thread=7):
    rows = np.array([(at, on, 7) for at, on in switches], dtype=np.int64).T
    table = Table(dict(zip(("start_ns", "goes_on", "global_tid"), rows, strict=True)))
    return records_of({"thread_switches": table}).on_core_ns(thread, start_ns, end_ns)


def test_a_thread_runs_between_going_on_and_leaving():
    switches = [(10, 1), (14, 0), (20, 1), (21, 0)]
    assert on_core(switches, 0, 30) == 5
    assert on_core(switches, 12, 21) == 3
    assert on_core(switches[::-1], 12, 21) == 3


def test_before_the_first_switch_a_thread_did_the_opposite():
    assert on_core([(10, 0)], 0, 30) == 10
    assert on_core([(10, 1)], 0, 30) == 20


def test_a_move_to_another_core_within_one_instant_keeps_it_running():
    assert on_core([(0, 1), (10, 1), (10, 0)], 0, 30) == 30


def test_a_thread_without_switches_is_not_known():
    assert on_core([(10, 1)], 0, 30, thread=8) is None
    assert records_of({}).on_core_ns(7, 0, 30) is None


@given(SWITCHES)
def test_each_instant_has_the_state_of_the_last_switch(switches):
    order = sorted(switches)
    spans = spans_on_core(*np.array(switches, dtype=np.int64).T)
    for at in range(-2, 34):
        before = [on for when, on in order if when <= at]
        runs = bool(before[-1]) if before else not order[0][1]
        assert bool(((spans[:, 0] <= at) & (at < spans[:, 1])).any()) == runs
