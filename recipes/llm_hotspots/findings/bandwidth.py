"""Findings on kernels that --weights asks after. Reads tables only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd

from nsys_llm.core.patterns import parse_pattern
from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.walls import Walls

from ..tables.bandwidth import LITTLE_HEADROOM_PCT
from .memops import by_gpu
from .texts import RULES


def bandwidth_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about the kernels of --weights."""
    rows = records(tables["bandwidth"])
    if not rows:
        return []
    return [
        *(_above_peak(row) for row in rows if row["judgement"] == "above peak"),
        *_room(rows, tables),
        *(_unmatched(row) for row in rows if row["launches_n"] == 0),
    ]


def _room(rows: Iterable[Record], tables: Tables) -> Iterator[Finding]:
    """Return findings on kernels far below the bandwidth: as fast as it allows, they gain that."""
    kernels, walls = tables["rank_kernels"], Walls(tables)
    # A kernel belongs to the first pattern that fits it, as in the table.
    free = kernels["exclusive_ns"] > 0
    for row in rows:
        fits = free & kernels["name"].map(parse_pattern(row["pattern"]).matches).astype(bool)
        free &= ~fits
        if row["judgement"] == "room" and fits.any():
            yield _room_finding(row, kernels[fits], walls)


def _room_finding(row: Record, kernels: pd.DataFrame, walls: Walls) -> Finding:
    times = {
        gpu: sum(kernel["exclusive_ns"] for kernel in some)
        for gpu, some in by_gpu(records(kernels)).items()
    }
    left = 1.0 - row["efficiency_pct"] / LITTLE_HEADROOM_PCT
    rank, device = max(times, key=lambda gpu: times[gpu] / max(walls.span_ns(*gpu), 1))
    return RULES["bandwidth_room"].finding(
        cause=Cause("kernels", detail=row["pattern"]),
        change=Change("kernels", time_ns=left * times[rank, device]),
        evidence=cells("bandwidth", row, ["pattern"], ["efficiency_pct", "mean_ns"]),
        fields={
            **_rate(row),
            "exclusive_ns": times[rank, device],
            "headroom_pct": LITTLE_HEADROOM_PCT,
            "left_pct": 100.0 * left,
        },
        rank=rank,
        device_id=device,
        name=row["example"],
        impact_ns=times[rank, device],
    )


def _above_peak(row: Record) -> Finding:
    return RULES["bandwidth_above_peak"].finding(
        evidence=cells("bandwidth", row, ["pattern"], ["efficiency_pct", "mean_ns"]),
        fields=_rate(row),
        name=row["example"],
    )


def _rate(row: Record) -> dict[str, float]:
    return {name: row[name] for name in ("size_bytes", "launches_n", "rate_gb_s", "peak_gb_s")}


def _unmatched(row: Record) -> Finding:
    evidence = cells("bandwidth", row, ["pattern"], ["names_n", "launches_n"])
    return RULES["bandwidth_pattern_unused"].finding(evidence=evidence)
