"""Flushes of the profiler in llm_hotspots; planted."""

from __future__ import annotations

import numpy as np
import pytest
from flushed_ranks import write_ranks
from quick_run import quick

US = 1_000


@pytest.mark.nightly
@pytest.mark.parametrize("first", [True, False], ids=["between operations", "before all"])
def test_a_rank_that_a_flush_makes_late_is_no_straggler_wherever_the_flush_is(tmp_path, first):
    held_ns = np.zeros((2, 30), dtype=int)
    held_ns[1][0] = 4_000 * US
    tables = quick("llm_hotspots", write_ranks(tmp_path / "ranks", held_ns, first=first))
    # Rank 0 has waited for it in the first collective.
    exposed = tables["overlap"].set_index("rank")["exposed_communication_ns"]
    assert exposed[0] - exposed[1] == pytest.approx(4_000 * US, rel=0.01)
    assert tables["rank_verdicts"]["verdict"].isna().all()
