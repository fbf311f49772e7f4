"""The finding on kernels that --weights asks after. Reads tables only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd

from nsys_llm.core.patterns import parse_pattern
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.walls import Walls

from ..tables.bandwidth import LITTLE_HEADROOM_PCT
from .memops import by_gpu
from .texts import RULES

_RATE: Final = (
    *("efficiency_pct", "mean_ns", "size_bytes", "launches_n", "rate_gb_s", "peak_gb_s"),
)


def bandwidth_findings(tables: Tables) -> Iterator[Finding]:
    """Yield what kernels far below the bandwidth gain where they are as fast as it allows."""
    kernels, walls = tables["rank_kernels"], Walls(tables)
    # A kernel belongs to the first pattern that fits it, as in the table.
    free = kernels["exclusive_ns"] > 0
    for row in records(tables["bandwidth"]):
        fits = free & kernels["name"].map(parse_pattern(row["pattern"]).matches).astype(bool)
        free &= ~fits
        if row["judgement"] == "room" and fits.any():
            yield _room(row, kernels[fits], walls)


def _room(row: Record, kernels: pd.DataFrame, walls: Walls) -> Finding:
    times = {
        gpu: sum(kernel["exclusive_ns"] for kernel in some)
        for gpu, some in by_gpu(records(kernels)).items()
    }
    left = 1.0 - row["efficiency_pct"] / LITTLE_HEADROOM_PCT
    rank, device = max(times, key=lambda gpu: times[gpu] / max(walls.span_ns(*gpu), 1))
    return RULES["bandwidth_room"].finding(
        cause=Cause("kernels", detail=row["pattern"]),
        change=Change("kernels", time_ns=left * times[rank, device]),
        evidence=cells("bandwidth", row, ["pattern"], _RATE),
        fields={
            "exclusive_ns": times[rank, device],
            "headroom_pct": LITTLE_HEADROOM_PCT,
            "left_pct": 100.0 * left,
        },
        rank=rank,
        device_id=device,
        name=row["example"],
        impact_ns=times[rank, device],
    )
