"""What changed between two runs: every change of kernel time, its kind, and whether it is real.

Method. Each rank is reduced to integers: how often each kernel, in each launch configuration, had
each duration; copies, API calls, idle time by cause, phases, steps; when communication kernels ran.
The ranks of a side are added up. A kernel's change is split exactly, by its name over all ranks:
what more or fewer launches make, at the mean of the baseline, and the rest, which longer or shorter
ones make (see `nsys_llm.numeric.effects`). All that is coarser adds these up. Whether durations
differ is told by Mann-Whitney's test over all launches, adjusted for the number of kernels, and by
the size of the change of the median (see `verdicts`).

Limits. Launches of one run are not independent: what differs significantly may differ between any
two runs. Only further runs of the baseline tell that. Sums compare runs of the same work; times per
step do where steps are counted. Kernels in a CUDA graph that was traced as a whole are not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.rank_trace import RankTrace

from .findings.answer import answer
from .findings.caveats import caveats
from .findings.regressions import findings
from .partials import DiffPartial, merged
from .per_rank.sums import map_one
from .tables import tabulation

__all__ = ["answer", "caveats", "empty", "findings", "map_rank", "merge", "tabulate"]


def empty() -> DiffPartial:
    """Return the identity of `merge`."""
    return DiffPartial()


def map_rank(trace: RankTrace, rank: RankKey, options: Mapping[str, Any]) -> DiffPartial:
    """Reduce one rank, on the side that its key names; see `rank_part`."""
    return map_one(trace, rank, options)


def merge(parts: Sequence[DiffPartial]) -> DiffPartial:
    """Join partials of distinct ranks; associative and commutative."""
    return merged(parts)


def tabulate(
    partial: DiffPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables; see `tables.tabulation`."""
    return tabulation.tabulate(partial, ranks, options)
