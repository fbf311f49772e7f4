"""Reduces one rank: its kernels, API calls and communication kernels."""

from __future__ import annotations

from nsys_llm.analyses.collectives.lanes import CollectivesPartial
from nsys_llm.analyses.collectives.profiler import map_held
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.core.concurrently import concurrently

from ..partials import TailPartial
from .apis import map_apis
from .kernels import map_kernels
from .launches import coded_launches


def map_rank(view: RankView) -> TailPartial:
    """Reduce one rank; base and mangled choose the names of kernels, see the parts for others."""
    trace, rank, options, steps = view.trace, view.key, view.options, view.steps
    launched = coded_launches(trace, steps, options)
    _, every = launched
    apis, collectives = concurrently(
        len(every.rows),
        lambda: map_apis(view, every),
        lambda: view.collectives,
    )
    return TailPartial(
        kernels=map_kernels(trace, rank, launched, steps, options),
        apis=apis,
        collectives=CollectivesPartial({rank: collectives} if collectives else {}),
        held=map_held(view),
    )
