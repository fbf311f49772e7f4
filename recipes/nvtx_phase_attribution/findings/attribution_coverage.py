"""Findings about what could not be led to a range, or to a phase."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Tables, percent, records
from nsys_llm.taxonomy.phase_maps import UNMAPPED
from nsys_llm.view.text import format_ns, format_percent, quoted

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
    held = rows[rows["attributed"]].groupby(["rank", "file"], sort=True)["gpu_ns"].sum()
    share = 100.0 * held.reindex(by_rank.index).fillna(0) / by_rank[by_rank > 0]
    low = share[share < LOW_COVERAGE_PCT].dropna()
    if low.empty:
        return []
    rank, file = low.idxmin()
    lost = rows[(rows["rank"] == rank) & ~rows["attributed"]]
    worst = records(lost.loc[[lost["gpu_ns"].idxmax()]])[0]
    numbers = {
        "share_pct": float(low.min()),
        "held_ns": int(held.get((rank, file), 0)),
        "gpu_ns": int(by_rank[rank, file]),
        "cut_ns": int(cut.get((rank, file), 0)),
    }
    without = (
        f" (without {format_ns(numbers['cut_ns'])} launched before the capture began, or in a "
        "range that was pushed by then)"
        if numbers["cut_ns"]
        else ""
    )
    others = f" {len(low)} ranks affected; rank {rank} is the worst." if len(low) > 1 else ""
    return [
        RULES["low_range_coverage"].finding(
            details=f"{format_ns(numbers['held_ns'])} of {format_ns(numbers['gpu_ns'])}{without}; "
            f"most of the rest, {format_ns(worst['gpu_ns'])}, is {worst['meaning']}.{others}",
            fields={"share": format_percent(low.min()), "file": quoted(file)},
            evidence=cells("attribution", worst, ("rank", "part"), ("gpu_ns",)),
            numbers=numbers,
            ranks=tuple(int(key) for key, _ in low.index),
            rank=int(rank),
            record=worst["capture"],
            impact_ns=int(by_rank[rank, file] - numbers["held_ns"]),
        )
    ]


def _unmarked_threads(tables: Tables) -> list[Finding]:
    rows = tables["attribution"]
    whole = rows.groupby("rank", sort=True)["gpu_ns"].sum()
    unmarked = rows[rows["part"] == "unmarked_thread"]
    share = 100.0 * unmarked["gpu_ns"] / unmarked["rank"].map(whole[whole > 0])
    much = unmarked[share >= LOST_PCT]
    if much.empty:
        return []
    worst = records(much.loc[[much["gpu_ns"].idxmax()]])[0]
    share_pct = percent(worst["gpu_ns"], int(whole[worst["rank"]]))
    rank = int(worst["rank"])
    others = f" {len(much)} ranks affected; rank {rank} is the worst." if len(much) > 1 else ""
    return [
        RULES["unmarked_thread"].finding(
            details=f"{format_ns(worst['gpu_ns'])}. A range of one thread does not hold what "
            f"another one launches.{others}",
            fields={"share": format_percent(share_pct), "rank": rank},
            evidence=cells("attribution", worst, ("rank", "part"), ("gpu_ns",)),
            numbers={"share_pct": share_pct},
            ranks=tuple(int(key) for key in much["rank"]),
            rank=rank,
            record=str(worst["capture"]),
            impact_ns=int(worst["gpu_ns"]),
        )
    ]


def _unmapped(tables: Tables) -> list[Finding]:
    phases = tables["phases"]
    rows = phases[(phases["phase"] == UNMAPPED) & (phases["gpu_pct"] >= UNMAPPED_PCT)]
    if rows.empty:
        return []
    row = records(rows)[0]
    tree = tables["range_tree"]
    outer = records(tree[(tree["depth"] == 0) & (tree["inclusive_ns"] > 0)].head(_TOP_RANGES))
    names = ", ".join(
        f"{quoted(top['label'])} {format_percent(top['inclusive_pct'])}" for top in outer
    )
    evidence = cells("phases", row, ("phase",), ("gpu_pct",))
    for top in outer:
        evidence += cells("range_tree", top, ("path", "kind"), ("inclusive_pct",))
    return [
        RULES["unmapped_ranges"].finding(
            details=f"The outermost ranges with most of it: {names or 'none'}.",
            fields={"share": format_percent(row["gpu_pct"])},
            evidence=evidence,
            name=UNMAPPED,
            impact_ns=int(row["gpu_ns"]),
        )
    ]
