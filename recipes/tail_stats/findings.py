"""What tail_stats tells its reader: the answer in two sentences, and findings."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nsys_llm.findings import Finding
from nsys_llm.recipes.tail_stats.api_findings import api_findings
from nsys_llm.recipes.tail_stats.collective_findings import collective_findings, waiting_words
from nsys_llm.recipes.tail_stats.rank_findings import rank_findings
from nsys_llm.recipes.tail_stats.shape_findings import shape_findings
from nsys_llm.recipes.tail_stats.tail_findings import tail_findings
from nsys_llm.view.text import counted, format_ns, format_percent, quoted, shortened

__all__ = ["answer", "findings"]

_Tables = Mapping[str, pd.DataFrame]


def answer(tables: _Tables) -> str:
    """Return what makes the tail, in two sentences."""
    tails, ranks = tables["tails"], tables["tail_ranks"]
    launches_n = int(tails["launches_n"].sum())
    if not launches_n:
        return (
            "No kernel starts in what was looked at. `coverage` says what the reports hold, and "
            "what a filter left of it."
        )
    outliers_n = int(tails["outliers_n"].sum())
    waits = tails["communication"]
    excess_ns, total_ns = int(tails["excess_ns"].sum()), int(tails["total_ns"].sum())
    waiting_ns = int(tails.loc[waits, "excess_ns"].sum())
    share = f" ({format_percent(100 * excess_ns / total_ns)})" if total_ns else ""
    first = (
        f"{counted(outliers_n, 'launch', 'launches')} of {launches_n:,} took more than twice the "
        f"median of their launch configuration, and all launches together spent "
        f"{format_ns(excess_ns)}{share} of {format_ns(total_ns)} beyond their medians."
    )
    waits_for = waiting_words(tables)
    if not excess_ns:
        return f"{first} No launch is slower than any other of its kind{waits_for}."
    if excess_ns == waiting_ns:
        return f"{first} All of it is in communication, where ranks wait for each other{waits_for}."
    worst = tails[~waits].iloc[0]
    part = f"; {format_ns(waiting_ns)} are in communication, where ranks wait" if waiting_ns else ""
    by_rank = ranks.groupby("rank", sort=True)["excess_ns"].sum()
    share = format_percent(100 * by_rank.max() / by_rank.sum())
    most = f", and rank {by_rank.idxmax()} has {share} of it" if len(by_rank) > 1 else ""
    return (
        f"{first[:-1]}{part}. Of the rest, {quoted(shortened(str(worst['name'])))} in "
        f"configuration {worst['config']} has the most with {format_ns(worst['excess_ns'])}{most}"
        f"{waits_for}."
    )


def findings(tables: _Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    return [
        *tail_findings(tables),
        *shape_findings(tables),
        *rank_findings(tables),
        *api_findings(tables),
        *collective_findings(tables),
    ]
