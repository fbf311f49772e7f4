"""Findings that every recipe shares: what is missing from a run. Made from its tables alone."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.one_job import why_unrelated
from nsys_llm.report.records import Tables
from nsys_llm.report.run_texts import LOW_COVERAGE_PCT, RULES
from nsys_llm.view.text import cleaned, quoted

_MOST_NAMED: Final = 5


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
    fields = {"reasons": " ".join(reported), **_counts(missing, files)}
    return [RULES["missing_ranks"].finding(fields=fields)]


def _unrelated(tables: Tables) -> list[Finding]:
    why = why_unrelated(tables)
    if why is None:
        return []
    files = tables["files"]
    files = files[files["status"] == "ok"]
    fields = {
        "names": _named(files),
        "why": why,
        "profiles_n": len(files),
        "more_n": max(len(files) - _MOST_NAMED, 0),
    }
    return [RULES["unrelated_profiles"].finding(fields=fields)]


def _named(files: pd.DataFrame) -> str:
    return ", ".join(quoted(label) for label in files["File"].head(_MOST_NAMED))


def _counts(some: pd.DataFrame, files: pd.DataFrame) -> dict[str, int]:
    more_n = max(len(some) - _MOST_NAMED, 0)
    return {"files_n": len(some), "all_n": len(files), "more_n": more_n}


def _no_gpu_work(files: pd.DataFrame) -> list[Finding]:
    idle = files[files["status"] == "no_gpu_work"]
    if idle.empty:
        return []
    fields = {"names": _named(idle), **_counts(idle, files)}
    return [RULES["no_gpu_work"].finding(fields=fields)]


def _opaque_graphs(coverage: pd.DataFrame) -> list[Finding]:
    opaque = coverage[coverage["opaque_graph_launches_n"].fillna(0) > 0]
    if opaque.empty:
        return []
    fields = {
        "launches_n": int(opaque["opaque_graph_launches_n"].sum()),
        "opaque_ranks_n": opaque["rank"].nunique(),
        "all_ranks_n": coverage["rank"].nunique(),
    }
    return [RULES["opaque_graphs"].finding(fields=fields)]


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
    return [
        RULES["low_api_coverage"].finding(
            rank=int(worst["rank"]),
            fields={
                "file": worst["file"],
                "known_pct": float(worst["pct"]),
                "limit_pct": LOW_COVERAGE_PCT,
                "known_ns": int(worst["known_ns"]),
                "of_ns": int(worst["missing_of_ns"]),
                "cut_ns": int(worst["api_cut_ns"]),
                "low_n": len(low),
                "all_n": len(by_rank),
            },
        )
    ]
