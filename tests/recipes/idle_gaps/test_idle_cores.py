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
