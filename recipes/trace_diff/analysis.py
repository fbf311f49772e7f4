"""What changed between two runs: every change of kernel time, its kind, and whether it is real.

Method. Each rank is reduced to integers: how often each kernel, in each launch configuration, had
each duration; copies, API calls, idle time by cause, phases, steps; when communication kernels ran.
The ranks of a side are added up. A kernel's change is split exactly, by its name over all ranks:
what more or fewer launches make, at the mean of the baseline, and the rest, which longer or shorter
ones make (see `nsys_llm.effects`). All that is coarser adds these up. Whether durations differ is
told by Mann-Whitney's test over all launches, adjusted for the number of kernels, and by the size
of the change of the median (see `verdicts`).

Limits. Launches of one run are not independent: what differs significantly may differ between any
two runs. Only further runs of the baseline tell that. Sums compare runs of the same work; times per
step do where steps are counted. Kernels in a CUDA graph that was traced as a whole are not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from nsys_llm.identity import Rank, RankKey
from nsys_llm.rank_trace import RankTrace
from nsys_llm.recipes.trace_diff import tabulation
from nsys_llm.recipes.trace_diff.answer import answer
from nsys_llm.recipes.trace_diff.caveats import caveats
from nsys_llm.recipes.trace_diff.findings import findings
from nsys_llm.recipes.trace_diff.partial import DiffPartial, merged
from nsys_llm.recipes.trace_diff.rank_part import map_one

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
    """Make the recipe's tables; see `nsys_llm.recipes.trace_diff.tabulation`."""
    return tabulation.tabulate(partial, ranks, options)
