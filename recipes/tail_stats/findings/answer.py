"""What tail_stats tells its reader: the answer in two sentences, and findings."""

from __future__ import annotations

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.view.text import counted, format_ns, format_percent, quoted, shortened

from .apis import api_findings
from .collectives import collective_findings, waiting_words
from .kernels import UNEVEN_RATIO, tail_findings
from .ranks import rank_findings
from .shapes import shape_findings


def answer(tables: Tables) -> str:
    """Return what makes the tail, in two sentences."""
    tails = tables["tails"]
    launches_n = int(tails["launches_n"].sum())
    if not launches_n:
        return (
            "No kernel starts in what was looked at. `coverage` says what the reports hold, and "
            "what a filter left of it."
        )
    excess_ns, total_ns = int(tails["excess_ns"].sum()), int(tails["total_ns"].sum())
    share = f" ({format_percent(100 * excess_ns / total_ns)})" if total_ns else ""
    first = (
        f"{counted(launches_n, 'launch', 'launches')} spent {format_ns(excess_ns)}{share} of "
        f"{format_ns(total_ns)} beyond the medians of their launch configurations"
    )
    waits = waiting_words(tables)
    if not excess_ns:
        return f"{first}. No launch is slower than any other of its kind{waits and f'; {waits}'}."
    apart, rest = _apart(tails)
    if not int(rest["excess_ns"].sum()):
        second = f" {waits[0].upper()}{waits[1:]}." if waits else ""
        return f"{first}: {' and '.join(apart)}, none in tails.{second}"
    tail = _tail(rest, tables["rank_tails"])
    worst = rest.iloc[0]
    return (
        f"{first}: {', '.join([*apart, tail])}. The worst tail is that of "
        f"{quoted(shortened(str(worst['name'])))} with {format_ns(worst['excess_ns'])}"
        f"{waits and f'; {waits}'}."
    )


def _apart(tails: pd.DataFrame) -> tuple[list[str], pd.DataFrame]:
    """Return what of the excess is no tail of a kernel, in words, and the rows of the rest."""
    waits, heap = tails["communication"], tails["second_heap"] & ~tails["communication"]
    waiting_ns = int(tails.loc[waits, "excess_ns"].sum())
    heap_ns = int(tails.loc[heap, "excess_ns"].sum())
    apart = []
    if waiting_ns:
        apart.append(f"{format_ns(waiting_ns)} in communication")
    if heap_ns:
        n = counted(int(heap.sum()), "configuration")
        apart.append(f"{format_ns(heap_ns)} in {n} with two kinds of work")
    return apart, tails[~waits & ~heap]


def _tail(rest: pd.DataFrame, rank_tails: pd.DataFrame) -> str:
    """Return what is the tail of kernels, and where it is, in words."""
    outliers_n = int(rest["outliers_n"].sum())
    slow = f"{counted(outliers_n, 'launch', 'launches')} over twice their median"
    where = _where(rank_tails, rest) or slow
    return f"{format_ns(int(rest['excess_ns'].sum()))} in tails ({where})"


def _where(rank_tails: pd.DataFrame, rest: pd.DataFrame) -> str:
    """Return which rank has far more of the time beyond the medians than the others, if any."""
    own = rank_tails.merge(rest[["name", "config", "communication"]])
    by_rank = own.groupby("rank", sort=True)["excess_ns"].sum()
    if len(by_rank) < 2 or by_rank.max() <= UNEVEN_RATIO * by_rank.mean():
        return ""
    share = format_percent(100 * by_rank.max() / by_rank.sum())
    return f"{share} of it on rank {by_rank.idxmax()}"


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    return [
        *tail_findings(tables),
        *shape_findings(tables),
        *rank_findings(tables),
        *api_findings(tables),
        *collective_findings(tables),
    ]
