"""Findings on kernels whose results may differ between runs, or between batch sizes."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.view.text import format_count, format_ns, format_percent, quoted, shortened

from .texts import RULES

#: Kernels named in one finding.
_NAMED: Final = 3


#: Rule and severity by the flag of the kernel rules; see `load_flag_meanings`.
_FLAGS: Final = {
    "atomics": ("determinism_atomics", "low"),
    "split_k": ("determinism_split_k", "note"),
    "cascade_merge": ("determinism_cascade_merge", "note"),
    "cublas_heuristic": ("determinism_cublas_heuristic", "note"),
}


def determinism_findings(tables: Tables) -> list[Finding]:
    """Return a finding for each flag that kernels of the run carry.

    Args:
        tables: `kernels` is read.
    """
    kernels = tables["kernels"]
    flags = kernels["flags"].fillna("").str.split(", ")
    found = []
    for flag in _FLAGS:
        own = kernels[pd.Series([flag in some for some in flags], index=kernels.index, dtype=bool)]
        own = own[own["total_ns"] > 0]
        if not own.empty:
            found.append(_finding(flag, own))
    return found


def _finding(flag: str, own: pd.DataFrame) -> Finding:
    rule, severity = _FLAGS[flag]
    heaviest = own.sort_values("total_ns", ascending=False, kind="stable").head(_NAMED)
    pairs = zip(heaviest["name"], heaviest["total_ns"], strict=True)
    named = ", ".join(f"{quoted(shortened(str(name)))} ({format_ns(ns)})" for name, ns in pairs)
    launches_n, share = int(own["launches_n"].sum()), float(own["total_pct"].sum())
    return RULES[rule].finding(
        severity=severity,
        details=f"Flag {quoted(flag)}: kernels {format_count(len(own))}, launches "
        f"{format_count(launches_n)}, {format_percent(share)} of kernel time; most of it in "
        f"{named}.",
        name=str(heaviest["name"].iloc[0]),
        impact_ns=int(own["total_ns"].sum()),
    )
