"""Findings on kernels whose results may differ between runs, or between batch sizes."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.view.text import format_ns, quoted, shortened

from .texts import RULES

#: Kernels named in one finding.
_NAMED: Final = 3

#: Rule by the flag of the kernel rules; see its `flag_meanings`. That cuBLAS chooses kernels by
#: shape is true of every run, and no remark.
_FLAGS: Final = {
    "atomics": "determinism_atomics",
    "split_k": "determinism_split_k",
    "cascade_merge": "determinism_cascade_merge",
}


def determinism_findings(tables: Tables) -> list[Finding]:
    """Return a finding for each flag that kernels of the run carry."""
    kernels = tables["kernels"]
    flags = kernels["flags"].fillna("").str.split(", ")
    reported = []
    for flag in _FLAGS:
        flagged = kernels[
            pd.Series([flag in some for some in flags], index=kernels.index, dtype=bool)
        ]
        flagged = flagged[flagged["total_ns"] > 0]
        if not flagged.empty:
            reported.append(_finding(flag, flagged))
    return reported


def _finding(flag: str, flagged: pd.DataFrame) -> Finding:
    heaviest = flagged.sort_values("total_ns", ascending=False, kind="stable").head(_NAMED)
    times = {f"kernel_{nth}_ns": int(ns) for nth, ns in enumerate(heaviest["total_ns"])}
    named = [
        f"{quoted(shortened(str(name)))} ({format_ns(time_ns)})"
        for name, time_ns in zip(heaviest["name"], times.values(), strict=True)
    ]
    return RULES[_FLAGS[flag]].finding(
        fields={
            "flag": flag,
            "kernels_n": len(flagged),
            "launches_n": int(flagged["launches_n"].sum()),
            "total_pct": float(flagged["total_pct"].sum()),
            "named": ", ".join(named),
        },
        numbers=times,
        name=str(heaviest["name"].iloc[0]),
        impact_ns=int(flagged["total_ns"].sum()),
    )
