"""Findings on slow links. From tables alone."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.wall_classes import COMMUNICATION
from nsys_llm.view.text import format_count, format_ns, format_percent, quoted

from .texts import LEAST_COLLECTIVES, LEAST_LINK_BYTES, RULES, SLOW_PCT

_WHERE: Final = ("group", "operation", "bucket")


def link_findings(tables: Tables) -> list[Finding]:
    """Return slow links."""
    names = dict(zip(tables["groups"]["group"], tables["groups"]["ranks"], strict=True))
    return [
        _slow_link(row, names)
        for row in records(tables["message_sizes"])
        if row["peak_pct"] is not None
        and row["peak_pct"] < SLOW_PCT
        and row["sized_n"] >= LEAST_COLLECTIVES
        and row["size_bytes"] >= row["sized_n"] * LEAST_LINK_BYTES
    ]


def _slow_link(row: Record, names: dict[int, str]) -> Finding:
    lost_ns = (1 - row["busbw_gb_s"] / row["peak_gb_s"]) * row["exposed_ns"]
    return RULES["slow_link"].finding(
        cause=Cause("link"),
        change=Change("unknown", time_ns=lost_ns, wall_classes=(COMMUNICATION,)),
        details=f"{row['busbw_gb_s']:.1f} GB/s of {row['peak_gb_s']:g} in "
        f"{format_count(row['sized_n'])} of {row['operation']}, {row['bucket']} each; "
        f"{format_ns(row['exposed_ns'])} of their transfer has no computation beside it.",
        fields={"ranks": quoted(names[row["group"]]), "share": format_percent(row["peak_pct"])},
        evidence=cells("message_sizes", row, _WHERE, ("busbw_gb_s", "peak_pct", "exposed_ns")),
        numbers={"lost_ns": lost_ns, "peak_gb_s": row["peak_gb_s"], "sized_n": row["sized_n"]},
        rank=row["rank"],
        device_id=row["device_id"],
        impact_ns=round(lost_ns),
    )
