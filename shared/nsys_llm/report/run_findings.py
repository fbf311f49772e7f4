"""Findings that every recipe shares: what is missing from a run. Made from its tables alone."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.one_job import why_unrelated
from nsys_llm.report.records import Tables
from nsys_llm.report.run_texts import LOW_COVERAGE_PCT, RULES
from nsys_llm.view.text import cleaned, counted, format_count, format_ns, format_percent, quoted

_MOST_NAMED: Final = 5
_RANKS: Final = "ranks or profiles"


def run_findings(tables: Tables) -> list[Finding]:
    """Return findings about the tables `files`, `coverage` and `wall`."""
    return [
        *_missing_ranks(tables["files"]),
        *_unrelated(tables),
        *_no_gpu_work(tables["files"]),
        *_opaque_graphs(tables["coverage"]),
        *_low_coverage(tables["coverage"]),
    ]


def _missing_ranks(files: pd.DataFrame) -> list[Finding]:
    missing = files[files["status"].isin(["failed", "absent"])]
    if missing.empty:
        return []
    # A reason begins with the file's name, and says what to do.
    reasons = [cleaned(reason).replace("`", "'") for reason in missing["reason"].head(_MOST_NAMED)]
    labels = [quoted(label) for label in missing["File"].head(_MOST_NAMED)]
    reported = [
        reason if status == "failed" else f"{label}: {reason}."
        for label, reason, status in zip(labels, reasons, missing["status"], strict=False)
    ]
    if len(missing) > _MOST_NAMED:
        reported.append(f"And {format_count(len(missing) - _MOST_NAMED)} more.")
    who = f"{format_count(len(missing))} of {counted(len(files), 'rank or profile', _RANKS)}"
    return [
        RULES["missing_ranks"].finding(
            details=" ".join(reported),
            fields={"who": who, "are": "is" if len(missing) == 1 else "are"},
            numbers=_counts(missing, files),
        )
    ]


def _unrelated(tables: Tables) -> list[Finding]:
    why = why_unrelated(tables)
    if why is None:
        return []
    files = tables["files"]
    files = files[files["status"] == "ok"]
    names = ", ".join(quoted(label) for label in files["File"].head(_MOST_NAMED))
    more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
    return [
        RULES["unrelated_profiles"].finding(
            details=f"{names}{more}: no profile gives its rank, and no kernel communicates.",
            fields={"profiles": counted(len(files), "profile"), "why": why},
            numbers={"profiles_n": len(files), "more_n": max(len(files) - _MOST_NAMED, 0)},
        )
    ]


def _counts(some: pd.DataFrame, files: pd.DataFrame) -> dict[str, float]:
    return {"files_n": len(some), "all_n": len(files), "more_n": len(some) - _MOST_NAMED}


def _no_gpu_work(files: pd.DataFrame) -> list[Finding]:
    idle = files[files["status"] == "no_gpu_work"]
    if idle.empty:
        return []
    names = ", ".join(quoted(name) for name in idle["File"].head(_MOST_NAMED))
    more = f" and {len(idle) - _MOST_NAMED} more" if len(idle) > _MOST_NAMED else ""
    some = f"{format_count(len(idle))} of {counted(len(files), 'rank or profile', _RANKS)}"
    return [
        RULES["no_gpu_work"].finding(
            details=f"Valid profiles without a kernel, copy or fill: {names}{more}.",
            fields={"some": some, "hold": "holds" if len(idle) == 1 else "hold"},
            numbers=_counts(idle, files),
        )
    ]


def _opaque_graphs(coverage: pd.DataFrame) -> list[Finding]:
    opaque = coverage[coverage["opaque_graph_launches_n"].fillna(0) > 0]
    if opaque.empty:
        return []
    launches_n = int(opaque["opaque_graph_launches_n"].sum())
    ranks_n = opaque["rank"].nunique()
    return [
        RULES["opaque_graphs"].finding(
            details=f"On {ranks_n} of {coverage['rank'].nunique()} ranks graphs were launched "
            "whose kernels the capture does not hold, nor a row for the graph. Kernel times, busy "
            "time and shares are without them, and idle time is not known.",
            fields={"launches": format_count(launches_n)},
            numbers={
                "launches_n": launches_n,
                "opaque_ranks_n": ranks_n,
                "all_ranks_n": coverage["rank"].nunique(),
            },
        )
    ]


def _low_coverage(coverage: pd.DataFrame) -> list[Finding]:
    by_rank = coverage.groupby(["rank", "file"], sort=True)[
        ["total_n", "total_ns", "api_missing_ns", "api_cut_ns"]
    ].sum()
    # What was launched before the capture began is cut off, not missing.
    by_rank["missing_of_ns"] = by_rank["total_ns"] - by_rank["api_cut_ns"]
    by_rank = by_rank[by_rank["missing_of_ns"] > 0].reset_index()
    by_rank["known_ns"] = by_rank["total_ns"] - by_rank["api_missing_ns"]
    by_rank["pct"] = 100.0 * by_rank["known_ns"] / by_rank["missing_of_ns"]
    low = by_rank[by_rank["pct"] < LOW_COVERAGE_PCT].sort_values("pct", kind="stable")
    if low.empty:
        return []
    worst = low.iloc[0]
    cut = f" (without {format_ns(worst['api_cut_ns'])} launched before the capture began)"
    return [
        RULES["low_api_coverage"].finding(
            details=f"{format_ns(worst['known_ns'])} of {format_ns(worst['missing_of_ns'])}"
            f"{cut if worst['api_cut_ns'] else ''}; "
            f"{len(low)} of {len(by_rank)} ranks are below {LOW_COVERAGE_PCT:.0f} %.",
            fields={"share": format_percent(worst["pct"]), "file": quoted(worst["file"])},
            rank=int(worst["rank"]),
            numbers={
                "pct": float(worst["pct"]),
                "limit_pct": LOW_COVERAGE_PCT,
                "known_ns": int(worst["known_ns"]),
                "of_ns": int(worst["missing_of_ns"]),
                "cut_ns": int(worst["api_cut_ns"]),
                "low_n": len(low),
                "all_n": len(by_rank),
            },
        )
    ]
