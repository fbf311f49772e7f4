"""Reduces one rank: its kernels, API calls and communication kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsys_llm.analyses.collectives.lanes import map_collectives
from nsys_llm.analyses.collectives.profiler import HeldDevices, map_held
from nsys_llm.analyses.steps.finder import steps_of
from nsys_llm.core.concurrently import concurrently
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace

from ..partials import TailPartial
from .apis import map_apis
from .kernels import map_kernels
from .launches import coded_launches


def map_rank(trace: RankTrace, rank: RankKey, options: Mapping[str, Any]) -> TailPartial:
    """Reduce one rank.

    Args:
        trace: Its rows and windows.
        rank: Its key.
        options: base and mangled choose the names of kernels; see the parts for others.
    """
    steps = steps_of(trace, options)
    launched = coded_launches(trace, steps, options)
    _, every = launched
    apis, collectives = concurrently(
        len(every.rows),
        lambda: map_apis(trace, rank, every),
        lambda: map_collectives(trace, rank),
    )
    return TailPartial(
        kernels=map_kernels(trace, rank, launched, steps, options),
        apis=apis,
        collectives=collectives,
        held=map_held(trace, rank) if collectives.ranks else HeldDevices(),
    )
