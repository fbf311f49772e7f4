"""What the profiler makes ranks late by, planted: the lateness, the innocent rank, the identity."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from flushed_ranks import US, write_ranks
from quick_run import quick


@pytest.mark.nightly("0", "2", "3")
@pytest.mark.parametrize("seed", range(4))
def test_the_part_of_a_lateness_is_what_the_flushes_of_both_ranks_make(tmp_path, seed):
    rng = np.random.default_rng(seed)
    held = rng.integers(50 * US, 900 * US, (2, 30)) * (rng.random((2, 30)) < 0.3)
    tables = quick("tail_stats", write_ranks(tmp_path / "ranks", held))
    collectives = tables["collectives"]
    # Nothing but flushes makes a rank late: all waiting is the profiler's.
    assert collectives["wait_ns"].tolist() == np.abs(held[0] - held[1]).tolist()
    assert collectives["profiler_ns"].tolist() == collectives["wait_ns"].tolist()
    caused = collectives.groupby("late_rank")["profiler_ns"].sum()
    late = [np.maximum(held[rank] - held[1 - rank], 0).sum() for rank in range(2)]
    assert caused[[0, 1]].tolist() == late
    verdicts = tables["rank_verdicts"]["verdict"].dropna()
    assert set(verdicts) <= {"profiler"}


def test_who_pauses_and_is_early_in_all_other_steps_is_not_late_on_average(tmp_path):
    late_ns = np.zeros((2, 30), dtype=int)
    late_ns[0, [9, 19]], late_ns[1, 4:8] = 700 * US, 900 * US
    folder = write_ranks(tmp_path / "ranks", late_ns)
    for rank in range(2):
        with sqlite3.connect(folder / f"rank{rank}.sqlite") as profile:
            profile.execute("DELETE FROM PROFILER_OVERHEAD")
    tables = quick("tail_stats", folder)
    assert tables["rank_verdicts"]["verdict"].tolist() == ["pauses", "pauses"]
    titles = tables["findings"].set_index("rank")["title"]
    # The first step is no full one: (4 x 900 - 2 x 700) / 29.
    assert titles[0] == "Rank 0 comes late in 2 of 29 steps: others wait 1.4 ms"
    assert titles[1] == "Rank 1 comes late in 4 of 29 steps: 75.9 us a step on average"


@pytest.mark.parametrize("step", [7, 0], ids=["between operations", "before all"])
def test_a_flush_makes_no_rank_late(tmp_path, step):
    held = np.zeros((2, 30), dtype=int)
    held[0, step] = 6_000 * US
    tables = quick("tail_stats", write_ranks(tmp_path / "ranks", held, first=step > 0))
    assert tables["rank_verdicts"]["verdict"].isna().all()
    # Before all operations nothing tells what held the host: the wait is shown, and nobody's.
    assert tables["findings"]["rule"].tolist() == ([] if step else ["collective_waits"])


@pytest.mark.parametrize("held_ns", [0, 6_000 * US])
def test_a_host_that_sleeps_while_the_profiler_works_is_not_told_from_it(tmp_path, held_ns):
    """The wall split says profiler, so do verdict and findings; nothing is to gain."""
    held, asleep = np.zeros((2, 30), dtype=int), np.zeros((2, 30), dtype=int)
    held[1, 7], asleep[1] = held_ns, 300 * US
    folder = write_ranks(tmp_path / "ranks", held, asleep_ns=asleep)
    tables = quick("tail_stats", folder)
    waited_ns = tables["stragglers"].set_index("rank").loc[1, "caused_wait_ns"]
    assert waited_ns == held_ns + 30 * 300 * US
    verdicts = tables["rank_verdicts"].set_index("rank")["verdict"]
    assert (verdicts[1], verdicts.isna()[0]) == ("profiler", True)
    assert tables["findings"]["title"].tolist() == ["The profiler makes rank 1 late"]
