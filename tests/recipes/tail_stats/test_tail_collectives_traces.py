"""Collectives of real traces against figures that were measured independently."""

from __future__ import annotations

import pytest
from results import rows, tables_of

pytestmark = pytest.mark.traces

RECIPE = "tail_stats"
ENDS = ("start", "end")

#: Pairs; kernel time of ranks 0 and 1; waiting; transfer of one window per collective; waiting
#: caused by ranks 0 and 1; median and largest start skew; median distance of ends. In ns.
KNOWN = {
    "before": (
        *(33, 17_172_652, 8_229_100, 13_375_816, 5_739_662),
        *(2_477_480, 10_898_336, 51_461, 3_339_732, 22_214),
    ),
    "after": (
        *(31, 9_989_016, 23_753_085, 22_485_194, 5_476_999),
        *(18_218_556, 4_266_638, 21_614, 7_031_585, 9_769),
    ),
}


def figures(tables):
    ((pairs_n, wait_ns, transfer_ns),) = rows(
        tables["communicators"], "collectives_n wait_ns transfer_ns"
    )
    met = tables["collectives"][tables["collectives"]["overlap"]]
    start_skew, end_spread = (met[f"last_{end}_ns"] - met[f"first_{end}_ns"] for end in ENDS)
    skews = start_skew.median(), start_skew.max(), end_spread.median()
    kernels = tables["collective_coverage"].set_index("rank")["total_ns"]
    caused = tables["stragglers"].set_index("rank")["caused_wait_ns"]
    return (pairs_n, kernels[0], kernels[1], wait_ns, transfer_ns, caused[0], caused[1], *skews)


@pytest.mark.nightly
@pytest.mark.parametrize("run", KNOWN)
@pytest.mark.parametrize("file", ["h100_mfu/{}.sqlite", "h100_mfu_ranks/{}"])
def test_the_known_figures_of_two_ranks_are_reproduced(run, file, traces, tmp_path):
    tables = tables_of(tmp_path / "o", traces / file.format(run), recipe=RECIPE)
    assert figures(tables) == KNOWN[run]
    # In one report or in two of one session, whose clock they share.
    assert rows(tables["rank_clocks"], "ahead_ns rate_ppm residual_ns") == [(0, 0.0, 0)] * 2
    (shown,) = rows(tables["communicators"], "operation overlap_n confidence communicator")
    assert shown == ("send_recv", KNOWN[run][0], "high", "0-1")
    # Two ranks that exchange data and launch the same kernels are no pipeline.
    assert not tables["communicators"]["staged"].any()
    # The late rank is not the one that spends more time in collectives.
    total_ns = tables["collective_coverage"].set_index("rank")["total_ns"]
    assert tables["stragglers"].iloc[0]["rank"] != total_ns.idxmax()
