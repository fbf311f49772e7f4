"""What tail_stats tells its reader: the answer in two sentences, and findings."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nsys_llm.findings import Finding
from nsys_llm.recipes.tail_stats.api_findings import api_findings
from nsys_llm.recipes.tail_stats.collective_findings import collective_findings, waiting_words
from nsys_llm.recipes.tail_stats.rank_findings import rank_findings
from nsys_llm.recipes.tail_stats.shape_findings import shape_findings
from nsys_llm.recipes.tail_stats.tail_findings import UNEVEN_RATIO, tail_findings
from nsys_llm.view.text import counted, format_ns, format_percent, quoted, shortened

__all__ = ["answer", "findings"]

_Tables = Mapping[str, pd.DataFrame]


def answer(tables: _Tables) -> str:
    """Return what makes the tail, in two sentences."""
    tails = tables["tails"]
    launches_n = int(tails["launches_n"].sum())
    if not launches_n:
        return (
            "No kernel starts in what was looked at. `coverage` says what the reports hold, and "
            "what a filter left of it."
        )
    outliers_n = int(tails["outliers_n"].sum())
    excess_ns, total_ns = int(tails["excess_ns"].sum()), int(tails["total_ns"].sum())
    share = f" ({format_percent(100 * excess_ns / total_ns)})" if total_ns else ""
    first = (
        f"{counted(outliers_n, 'launch', 'launches')} of {launches_n:,} took more than twice the "
        f"median of their launch configuration, and all launches together spent "
        f"{format_ns(excess_ns)}{share} of {format_ns(total_ns)} beyond their medians"
    )
    waits_for = waiting_words(tables)
    if not excess_ns:
        return f"{first}. No launch is slower than any other of its kind{waits_for}."
    apart, rest = _apart(tails)
    rest_ns = int(rest["excess_ns"].sum())
    if not rest_ns:
        return f"{first}. All of it is {' and '.join(apart)}{waits_for}."
    parts = f"; of that {', and '.join(apart)}" if apart else ""
    worst, slow = rest.iloc[0], counted(int(rest["outliers_n"].sum()), "outlier")
    return (
        f"{first}{parts}. Of {'the rest' if apart else 'all that'} ({format_ns(rest_ns)}, {slow}), "
        f"{quoted(shortened(str(worst['name'])))} in configuration {worst['config']} has the most "
        f"with {format_ns(worst['excess_ns'])}{_where(tables['rank_tails'], rest)}{waits_for}."
    )


def _apart(tails: pd.DataFrame) -> tuple[list[str], pd.DataFrame]:
    """Return what of the excess is no tail of a kernel, in words, and the rows of the rest."""
    waits, heap = tails["communication"], tails["second_heap"] & ~tails["communication"]
    waiting_ns = int(tails.loc[waits, "excess_ns"].sum())
    heap_ns = int(tails.loc[heap, "excess_ns"].sum())
    apart = []
    if waiting_ns:
        apart.append(f"{format_ns(waiting_ns)} in communication, where ranks wait")
    if heap_ns:
        n = counted(int(heap.sum()), "configuration")
        apart.append(f"{format_ns(heap_ns)} in {n} with two kinds of work, which is no tail")
    return apart, tails[~waits & ~heap]


def _where(rank_tails: pd.DataFrame, rest: pd.DataFrame) -> str:
    """Return which rank has far more of the time beyond the medians than the others, if any."""
    own = rank_tails.merge(rest[["name", "config", "communication"]])
    by_rank = own.groupby("rank", sort=True)["excess_ns"].sum()
    if len(by_rank) < 2 or by_rank.max() <= UNEVEN_RATIO * by_rank.mean():
        return ""
    share = format_percent(100 * by_rank.max() / by_rank.sum())
    return f", and rank {by_rank.idxmax()} has {share} of all of it"


def findings(tables: _Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    return [
        *tail_findings(tables),
        *shape_findings(tables),
        *rank_findings(tables),
        *api_findings(tables),
        *collective_findings(tables),
    ]
