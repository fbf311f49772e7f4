"""Time on a core, out of switches: by hand, and instant by instant."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from nsys_llm.facts.host.states import DOING, HostRecords
from nsys_llm.profile.tables import Table
from nsys_llm.trace.rank_trace import RankTrace

SWITCHES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1)), min_size=1, max_size=9)


def records_of(tables):
    return HostRecords(RankTrace(tables, {}, None, {}, ()))


def of_switches(switches):
    rows = np.array([(at, on, 7) for at, on in switches], dtype=np.int64).T
    table = Table(dict(zip(("start_ns", "goes_on", "global_tid"), rows, strict=True)))
    return records_of({"thread_switches": table})


def test_a_thread_without_switches_is_not_known():
    assert of_switches([(10, 1)]).on_core_ns(8, 0, 30) is None
    assert records_of({}).on_core_ns(7, 0, 30) is None


@given(SWITCHES)
@example([(0, 0), (0, 1)])  # from one core to another
def test_each_instant_has_the_state_of_the_last_switch(switches):
    order, records = sorted(switches), of_switches(switches)
    at_ns = np.arange(-2, 34)
    doing, runs = records.doing(7, at_ns)
    ran_n = 0
    for at, what, is_known_to_run in zip(
        at_ns.tolist(), doing.tolist(), runs.tolist(), strict=True
    ):
        before = [on for when, on in order if when <= at]
        ran_n += bool(before[-1]) if before else not order[0][1]
        assert DOING[what] == (("off_core", "running")[before[-1]] if before else "unknown")
        assert is_known_to_run == (DOING[what] == "running")
        assert records.on_core_ns(7, -2, at + 1) == ran_n
