"""Findings about what could not be led to a range, or to a phase."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.taxonomy.phase_maps import UNMAPPED
from nsys_llm.view.text import counted, format_ns, format_percent, quoted

from .texts import LOST_PCT, LOW_COVERAGE_PCT, RULES, UNMAPPED_PCT

_TOP_RANGES: Final = 4
#: The parts of attribution that the begin of the capture cut.
_CUT: Final = ("before_capture", "cut_range")


def coverage_findings(tables: Tables) -> list[Finding]:
    """Return what the tables attribution and phases tell."""
    return [*_low_coverage(tables), *_unmarked_threads(tables), *_unmapped(tables)]


def _low_coverage(tables: Tables) -> list[Finding]:
    rows = tables["attribution"]
    # What was launched, or marked, before the capture began is cut off: no range could hold it.
    is_cut = rows["part"].isin(_CUT)
    cut = rows[is_cut].groupby(["rank", "file"], sort=True)["gpu_ns"].sum()
    rows = rows[~is_cut]
    by_rank = rows.groupby(["rank", "file"], sort=True)["gpu_ns"].sum()
    found = rows[rows["attributed"]].groupby(["rank", "file"], sort=True)["gpu_ns"].sum()
    share = 100.0 * found.reindex(by_rank.index).fillna(0) / by_rank[by_rank > 0]
    low = share[share < LOW_COVERAGE_PCT].dropna()
    if low.empty:
        return []
    rank, file = low.idxmin()
    lost = rows[(rows["rank"] == rank) & ~rows["attributed"]]
    worst = lost.loc[lost["gpu_ns"].idxmax()]
    cut_ns = int(cut.get((rank, file), 0))
    without = (
        f" (without {format_ns(cut_ns)} launched before the capture began, or in a range that "
        "was pushed by then)"
        if cut_ns
        else ""
    )
    return [
        RULES["low_range_coverage"].finding(
            severity="medium",
            details=f"{format_ns(found.get((rank, file), 0))} of "
            f"{format_ns(by_rank[rank, file])}{without}; "
            f"most of the rest, {format_ns(worst['gpu_ns'])}, is "
            f"{worst['meaning']}. {len(low)} of {counted(len(by_rank), 'rank')} "
            f"{'is' if len(low) == 1 else 'are'} below {LOW_COVERAGE_PCT:.0f} %.",
            fields={"share": format_percent(low.min()), "file": quoted(file)},
            rank=int(rank),
            record=None if pd.isna(worst["capture"]) else str(worst["capture"]),
            impact_ns=int(by_rank.sum() - found.sum()),
        )
    ]


def _unmarked_threads(tables: Tables) -> list[Finding]:
    rows = tables["attribution"]
    own = rows[rows["part"] == "unmarked_thread"]
    total_ns, lost_ns = int(rows["gpu_ns"].sum()), int(own["gpu_ns"].sum())
    if not total_ns or 100.0 * lost_ns < LOST_PCT * total_ns:
        return []
    worst = own.loc[own["gpu_ns"].idxmax()]
    return [
        RULES["unmarked_thread"].finding(
            severity="low",
            details=f"{format_ns(lost_ns)} on {counted(own['rank'].nunique(), 'rank')}, most on "
            f"rank {worst['rank']} ({format_ns(worst['gpu_ns'])}). A range of one thread does not "
            "hold what another one launches.",
            fields={"share": format_percent(100.0 * lost_ns / total_ns)},
            rank=int(worst["rank"]),
            record=str(worst["capture"]),
            impact_ns=lost_ns,
        )
    ]


def _unmapped(tables: Tables) -> list[Finding]:
    phases = tables["phases"]
    row = phases[(phases["phase"] == UNMAPPED) & (phases["gpu_pct"] >= UNMAPPED_PCT)]
    if row.empty:
        return []
    one = row.iloc[0]
    tree = tables["range_tree"]
    outer = tree[(tree["depth"] == 0) & (tree["inclusive_ns"] > 0)].head(_TOP_RANGES)
    names = ", ".join(
        f"{quoted(name)} {format_percent(share)}"
        for name, share in zip(outer["label"], outer["inclusive_pct"], strict=True)
    )
    return [
        RULES["unmapped_ranges"].finding(
            severity="low",
            details=f"{format_ns(one['gpu_ns'])}. The outermost ranges with most of it: {names}.",
            fields={"share": format_percent(one["gpu_pct"])},
            name=UNMAPPED,
            impact_ns=int(one["gpu_ns"]),
        )
    ]
