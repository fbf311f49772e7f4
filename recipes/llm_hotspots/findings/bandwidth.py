"""Findings on kernels that --weights asks after. Reads tables only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, records
from nsys_llm.view.text import (
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    format_value,
    quoted,
)

from ..tables.bandwidth import LITTLE_HEADROOM_PCT

_WORDS: Final = {
    "above peak": (
        "note",
        "seems to read faster than the memory can",
        "Check the bytes in the file of --weights; or the L2 cache holds these weights, and the "
        "peak of the memory is no limit.",
    ),
    "little headroom": (
        "note",
        "is near the memory bandwidth",
        "A better kernel gains little. Read less: quantise the weights, or read them for more "
        "tokens at once (larger batch, speculative decoding).",
    ),
    "room": (
        "medium",
        "is far from the memory bandwidth",
        "Try another kernel or its tuning (split K, vector width, fewer waves), fuse small "
        "products into one, and look at its launch configuration.",
    ),
}


def bandwidth_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return what is to be said about the kernels of --weights.

    Args:
        tables: Finished tables by name: bandwidth; without rows where the option was not given.
    """
    rows = records(tables["bandwidth"])
    judged = [_judged(row) for row in rows if row["judgement"] in _WORDS]
    return [*judged, *(_unmatched(row) for row in rows if row["launches_n"] == 0)]


def _judged(row: Record) -> Finding:
    severity, words, advice = _WORDS[row["judgement"]]
    efficiency_pct = row["efficiency_pct"]
    # What the launches would save at the efficiency that leaves little headroom.
    spare = max(0.0, 1.0 - efficiency_pct / LITTLE_HEADROOM_PCT)
    return Finding(
        rule="bandwidth_" + row["judgement"].replace(" ", "_"),
        severity=severity,
        scope="kernel",
        title=f"{quoted(row['pattern'])} {words}: {format_percent(efficiency_pct)}",
        evidence=f"{format_bytes(row['size_bytes'])} in {format_ns(row['mean_ns'])} (mean "
        f"of {format_count(row['launches_n'])} launches, {format_ns(row['total_ns'])} in all) are "
        f"{format_value(row['rate_gb_s'], 'GB/s')} of {format_value(row['peak_gb_s'], 'GB/s')}.",
        tables=("bandwidth",),
        recommendation=advice,
        name=row["example"],
        impact_ns=int(row["total_ns"] * spare),
    )


def _unmatched(row: Record) -> Finding:
    return Finding(
        rule="bandwidth_pattern_unused",
        severity="low",
        scope="kernel",
        title=f"No kernel fits {quoted(row['pattern'])} of --weights",
        evidence=f"{format_count(row['names_n'])} kernel names fit it, with 0 launches in the "
        "window.",
        tables=("bandwidth", "kernels"),
        recommendation="Take the pattern from the table kernels; names are matched in the form "
        "that --base or --mangled chooses.",
    )
