"""What the profiler makes ranks late by, planted: the lateness, the innocent rank, the identity."""

from __future__ import annotations

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
    ranks = tables["stragglers"].set_index("rank")
    late = [np.maximum(held[rank] - held[1 - rank], 0).sum() for rank in range(2)]
    assert ranks["profiler_ns"][[0, 1]].tolist() == late
    verdicts = tables["rank_verdicts"]["verdict"].dropna()
    assert set(verdicts) <= {"profiler"}
