"""Reduces one rank: its communication kernels, and where the time of its steps went."""

from __future__ import annotations

from collections.abc import Mapping

from nsys_llm.facts.nccl.kept import RankComm
from nsys_llm.facts.nccl.sizes import map_sizes
from nsys_llm.facts.nccl.steps import map_devices
from nsys_llm.facts.rank_view import RankView
from nsys_llm.trace.identity import RankKey


def of(view: RankView) -> Mapping[RankKey, RankComm]:
    """Reduce one rank; nothing is kept of one that does not communicate."""
    if not view.collectives:
        return {}
    return {view.key: RankComm(map_devices(view), map_sizes(view.trace))}
