"""What makes the tail of a run, and who makes whom wait.

Method, collectives. A rank is reduced to the times of its communication kernels. Kernels of several
ranks that line up are the same collectives (see `nsys_llm.collective_matching`); their ends align
the clocks of the reports (`nsys_llm.collective_clocks`). What each rank spends in a collective
before the last one comes is waiting, and the last one caused it (`nsys_llm.collective_waits`).

Limits. The matching rests on time where a trace does not name communicators; confidence is stated,
and what the clocks cannot tell is called inconclusive. Kernels inside a CUDA graph that was traced
as a whole are not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from nsys_llm.findings import Finding
from nsys_llm.identity import Rank, RankKey
from nsys_llm.manifest import load_manifest
from nsys_llm.outputs import declared_frame
from nsys_llm.rank_trace import RankTrace
from nsys_llm.recipes.tail_stats import collectives_part
from nsys_llm.recipes.tail_stats.collective_findings import collective_answer, collective_findings
from nsys_llm.recipes.tail_stats.collectives_partial import CollectivesPartial

__all__ = ["TailPartial", "answer", "empty", "findings", "map_rank", "merge", "tabulate"]

_RECIPE: Final = "tail_stats"


@dataclass(frozen=True)
class TailPartial:
    """Many ranks, by part of the recipe."""

    collectives: CollectivesPartial = field(default_factory=CollectivesPartial)


def empty() -> TailPartial:
    """Return the identity of `merge`."""
    return TailPartial()


def map_rank(trace: RankTrace, rank: RankKey, options: Mapping[str, Any]) -> TailPartial:
    """Reduce one rank.

    Args:
        trace: Its rows and windows.
        rank: Its key.
        options: By option name.
    """
    return TailPartial(collectives_part.map_rank(trace, rank))


def merge(parts: Sequence[TailPartial]) -> TailPartial:
    """Join partials of distinct ranks; associative and commutative."""
    return TailPartial(collectives_part.merged([part.collectives for part in parts]))


def tabulate(
    partial: TailPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables.

    Args:
        partial: All ranks.
        ranks: Those with GPU work, in order.
        options: By option name.

    Returns:
        By table name, as manifests/tail_stats.json declares them.
    """
    columns = collectives_part.columns(partial.collectives, ranks, options)
    manifest = load_manifest(_RECIPE)
    return {name: declared_frame(manifest.table(name), one) for name, one in columns.items()}


def answer(tables: Mapping[str, pd.DataFrame]) -> str:
    """Answer the recipe's question in two sentences, from its tables."""
    return collective_answer(tables)


def findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    return collective_findings(tables)
