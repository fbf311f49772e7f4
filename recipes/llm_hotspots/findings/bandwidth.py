"""Findings on kernels that --weights asks after. Reads tables only."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import (
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    format_value,
    quoted,
)

from ..tables.bandwidth import LITTLE_HEADROOM_PCT
from .texts import RULES

#: Rule and severity of each judgement that is told.
_JUDGED: Final = {
    "above peak": ("bandwidth_above_peak", "note"),
    "little headroom": ("bandwidth_little_headroom", "note"),
    "room": ("bandwidth_room", "medium"),
}


def bandwidth_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about the kernels of --weights.

    Args:
        tables: Finished tables by name: bandwidth; without rows where the option was not given.
    """
    rows = records(tables["bandwidth"])
    judged = [_judged(row) for row in rows if row["judgement"] in _JUDGED]
    return [*judged, *(_unmatched(row) for row in rows if row["launches_n"] == 0)]


def _judged(row: Record) -> Finding:
    rule, severity = _JUDGED[row["judgement"]]
    efficiency_pct = row["efficiency_pct"]
    # What the launches would save at the efficiency that leaves little headroom.
    spare = max(0.0, 1.0 - efficiency_pct / LITTLE_HEADROOM_PCT)
    return RULES[rule].finding(
        severity=severity,
        details=f"{format_bytes(row['size_bytes'])} in {format_ns(row['mean_ns'])} (mean "
        f"of {format_count(row['launches_n'])} launches, {format_ns(row['total_ns'])} in all) are "
        f"{format_value(row['rate_gb_s'], 'GB/s')} of {format_value(row['peak_gb_s'], 'GB/s')}.",
        fields={"pattern": quoted(row["pattern"]), "share": format_percent(efficiency_pct)},
        name=row["example"],
        impact_ns=int(row["total_ns"] * spare),
    )


def _unmatched(row: Record) -> Finding:
    return RULES["bandwidth_pattern_unused"].finding(
        severity="low",
        details=f"{format_count(row['names_n'])} kernel names fit it, with 0 launches in the "
        "window.",
        fields={"pattern": quoted(row["pattern"])},
    )
