"""Reduces one rank: its kernels and communication kernels."""

from __future__ import annotations

from nsys_llm.facts.held import map_held
from nsys_llm.facts.rank_view import RankView

from ..partials import TailPartial
from .kernels import map_kernels
from .launches import coded_launches


def map_rank(view: RankView) -> TailPartial:
    """Reduce one rank; base and mangled choose the names of kernels, see the parts for others."""
    lanes = view.collectives
    return TailPartial(
        kernels=map_kernels(view, coded_launches(view.trace, view.steps, view.options)),
        lanes={view.key: lanes} if lanes else {},
        held=map_held(view),
    )
