"""What an analysis offers to a run and to its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.rank_trace import RankTrace


class Analysis(Protocol):
    """The functions of `nsys_llm.recipes.<name>.analysis`; see the design of each in its module.

    A partial holds integers and strings only, so that the order of merging changes nothing.
    """

    def empty(self) -> Any:
        """Return the identity of `merge`."""

    def map_rank(self, trace: RankTrace, rank: RankKey, options: Mapping[str, Any]) -> Any:
        """Reduce one rank to a partial; no I/O."""

    def merge(self, parts: Sequence[Any]) -> Any:
        """Join partials of distinct ranks; associative and commutative."""

    def tabulate(
        self, partial: Any, ranks: Sequence[Rank], options: Mapping[str, Any]
    ) -> dict[str, pd.DataFrame]:
        """Make the recipe's own tables, once; `ranks` are those with GPU work, in order."""

    def answer(self, tables: Mapping[str, pd.DataFrame]) -> str:
        """Answer the recipe's question in two sentences, from its tables."""

    def caveats(self, tables: Mapping[str, pd.DataFrame]) -> list[str]:
        """Return what to know before reading the recipe's numbers, as prose."""

    def findings(self, tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
        """Return what stands out in the tables, in no order."""

    def missing_ranges(self, partial: Any, rank: RankKey) -> Mapping[str, tuple[int, int]]:
        """Return what of a rank lies in no NVTX range, operations and ns, by `CoverageRow.op`.

        Only recipes that look at ranges have this function; the partial is that of the one rank.
        """
