"""Reduces one rank: its communication kernels, and where the time of its steps went."""

from __future__ import annotations

from nsys_llm.facts.rank_view import RankView

from ..partials import CommPartial, RankComm
from .sizes import map_sizes
from .steps import map_devices


def map_rank(view: RankView) -> CommPartial:
    """Reduce one rank; nothing is kept of one that does not communicate."""
    lanes = view.collectives
    if not lanes:
        return CommPartial()
    calls = map_sizes(view.trace)
    return CommPartial(
        lanes={view.key: tuple(calls.named(lane) for lane in lanes)},
        ranks={view.key: RankComm(map_devices(view), calls)},
    )
