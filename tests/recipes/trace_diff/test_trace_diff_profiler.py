"""Waiting that is the profiler's in one of two runs, planted: trace_diff says how much of it is."""

from __future__ import annotations

import numpy as np
import pytest
from flushed_ranks import US, write_ranks
from quick_run import quick

STEPS = 30


def waits(seed, rank=0):
    """Return ns a rank and step: long ones on one rank, in more steps than chance explains."""
    rng = np.random.default_rng(seed)
    waits_ns = np.zeros((2, STEPS), dtype=int)
    waits_ns[rank, rng.choice(STEPS, 12, replace=False)] = rng.integers(2_000, 6_000, 12) * US
    return waits_ns


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("flushed", [True, False])
def test_the_profilers_part_of_a_change_of_waiting_is_said(tmp_path, seed, flushed):
    none, some = np.zeros((2, STEPS), dtype=int), waits(seed)
    before = write_ranks(tmp_path / "before", none)
    held, asleep = (some, none) if flushed else (none, some)
    after = write_ranks(tmp_path / "after", held, asleep_ns=asleep)
    tables = quick("trace_diff", after, "--baseline", str(before))
    row = tables["collectives"].iloc[0]
    assert row["communicator"] == "all"
    assert (row["baseline_wait_ns"], row["baseline_profiler_ns"]) == (0, 0)
    assert row["input_wait_ns"] == some.sum()
    assert row["input_profiler_ns"] == (some.sum() if flushed else 0)
    by_rule = tables["findings"].set_index("rule")
    rule = "profiler_wait" if flushed else "waiting"
    assert rule in by_rule.index
    assert not ({"profiler_wait", "waiting"} - {rule}) & set(by_rule.index)
    assert ("the profiler's own work" in by_rule.loc[rule, "details"]) is flushed
