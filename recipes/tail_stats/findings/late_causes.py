"""Why a rank comes last: its GPU, its work, or its host. Reads finished tables only."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import format_ns, format_percent

from .paces import Pace, pace_of
from .texts import SLOW_RATIO

#: What a cause says: for the title, ahead of the evidence, and what to look at.
Cause = tuple[str, str, str]

#: Part of a rank's lateness that its GPU is idle longer than the others', from which its host is
#: late; ours.
_IDLE_SHARE: Final = 0.5
_ANYTHING: Final = (
    "what it runs there instead: longer kernels (a throttled or shared GPU, more work than the "
    "others), a synchronisation or a copy, or a host that launches late"
)


def late_cause(tables: Tables, row: Record) -> Cause:
    """Return what the tables show about a row of stragglers.

    Args:
        tables: tail_ranks and rank_tails.
        row: A rank that the others wait for.
    """
    pace = pace_of(tables, row)
    if pace.uneven:
        return _uneven(pace)
    if pace.slow:
        more = format_percent(100.0 * (pace.ratio - 1))
        return (
            "",
            f"The medians of its own kernels are {more} above those of the other ranks. ",
            "the clock, power limit and temperature of its GPU, and another process on it",
        )
    return _late_host(tables, row) or ("", "", _ANYTHING)


def _uneven(pace: Pace) -> Cause:
    times = pace.uneven[0][1]
    return (
        f", with more work in {pace.words()}",
        f"{pace.words()} takes {times:.2f} times as long as on the other ranks; its other kernels "
        "are as fast as theirs. ",
        "what decides how much that kernel has to do (experts that get most tokens, the longer "
        "sequences of a batch)",
    )


def _late_host(tables: Tables, row: Record) -> Cause | None:
    """Return the cause where the GPU of the late rank has nothing to run while the others wait."""
    devices = records(tables["tail_ranks"])
    place = (row["rank"], row["device_id"])
    own = next((one for one in devices if (one["rank"], one["device_id"]) == place), None)
    others = [one for one in devices if one is not own and one["window_ns"]]
    if own is None or not others or not own["window_ns"]:
        return None
    usual = float(pd.Series([one["idle_ns"] / one["window_ns"] for one in others]).median())
    work_ns = float(pd.Series([one["total_ns"] for one in others]).median())
    more_ns = own["idle_ns"] - usual * own["window_ns"]
    late_ns = row["caused_wait_ns"] / max(row["ranks_n"] - 1, 1)
    if own["total_ns"] > SLOW_RATIO["low"] * work_ns or more_ns < _IDLE_SHARE * late_ns:
        return None
    return (
        ": its host launches late",
        f"Its GPU is idle for {format_percent(100.0 * own['idle_ns'] / own['window_ns'])} of its "
        f"window, {format_percent(100.0 * usual)} on the median of the others: "
        f"{format_ns(more_ns)} more, while its kernels are as fast as theirs. ",
        "what its host does while its GPU is idle (idle_gaps lists the causes): cores shared with "
        "other threads, data loading, garbage collection, synchronization",
    )
