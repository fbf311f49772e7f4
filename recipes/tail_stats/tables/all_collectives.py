"""The tables of collectives, made once all ranks are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys_llm.analyses.collectives.lanes import CollectivesPartial
from nsys_llm.analyses.collectives.matched import match_collectives
from nsys_llm.analyses.collectives.profiler import HeldDevices, delays_ns
from nsys_llm.report.columns import Columns
from nsys_llm.trace.identity import Rank

from .collectives import clock_columns, collective_columns, coverage_columns, sequence_columns
from .stragglers import straggler_columns, wait_map_columns


def columns(
    partial: CollectivesPartial,
    held: HeldDevices,
    ranks: Sequence[Rank],
    options: Mapping[str, Any],
) -> dict[str, Columns]:
    """Return the columns of each table of this part.

    Args:
        partial: All ranks.
        held: When their devices were idle because of the profiler.
        ranks: Those with GPU work, in order.
        options: disable_alignment takes all times as those of one clock.
    """
    found = match_collectives(partial, ranks, options)
    delays = delays_ns(found, held)
    return {
        "communicators": sequence_columns(found),
        "collectives": collective_columns(found, delays),
        "stragglers": straggler_columns(found, delays),
        "wait_map": wait_map_columns(found),
        "collective_coverage": coverage_columns(found),
        "rank_clocks": clock_columns(found),
    }
