"""Findings on launches over twice their median that come together (table outlier_clusters)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, grouped, records, window_of
from nsys_llm.report.walls import Gpu
from nsys_llm.view.text import counted, shortened

from .kernels import worst_pct
from .members import gpu_of
from .texts import MOST, RULES

_BURST: Final = ("rank", "device_id", "ranks", "window_start_ns")
_SIZES: Final = ("outliers_n", "ranks_n", "expected", "kernels_n", "excess_ns", "window_end_ns")


def burst_findings(tables: Tables, named: Collection[Gpu]) -> list[Finding]:
    """Return one finding a GPU and set of ranks, about the costliest of its bursts.

    Args:
        named: GPUs that other findings are about.
    """
    rows = [row for row in records(tables["outlier_clusters"]) if gpu_of(row) not in named]
    by_place = grouped(rows, "ranks", "rank", "device_id")
    found = [_burst(tables, alike) for alike in by_place.values()]
    return sorted(found, key=lambda finding: -finding.impact_ns)[:MOST]


def _burst(tables: Tables, rows: Sequence[Record]) -> Finding:
    """Return the finding on bursts of the same GPU, the costliest first."""
    row, more_n = rows[0], len(rows) - 1
    rank, device_id = gpu_of(row)
    lost_ns = sum(item["excess_ns"] for item in rows)
    alone = row["ranks_n"] == 1
    return RULES["outlier_cluster"].finding(
        cause=Cause("kernels", rank, device_id, row["name"]),
        change=Change(
            "launches",
            row["name"],
            time_ns=lost_ns,
            worst_pct=worst_pct(tables, row, _listed(tables, row)),
        ),
        fields={
            "where": f"rank {rank}" if alone else counted(row["ranks_n"], "rank"),
            "more": f"the largest of {more_n + 1}" if more_n else "",
            "together": "" if alone else row["ranks"],
            "kernel": shortened(row["name"]),
            "likely_cause": row["likely_cause"],
            "lost_ns": lost_ns,
        },
        case="beside" if row["likely_cause"].startswith("shared") else None,
        evidence=(
            *cells("outlier_clusters", row, _BURST, _SIZES),
            claim(
                *(tables, "lasting_ns", "outlier_clusters", "window_end_ns-window_start_ns"),
                **{name: row[name] for name in _BURST},
            ),
            claim(
                *(tables, "bursts_n", "outlier_clusters", "rank", "count"),
                **{name: row[name] for name in ("rank", "device_id", "ranks")},
            ),
        ),
        rank=rank,
        device_id=device_id,
        name=row["name"],
        window_ns=window_of(row, "window_start_ns", "window_end_ns"),
        impact_ns=lost_ns,
    )


def _listed(tables: Tables, row: Record) -> list[Record]:
    """Return the listed outliers of a burst on its GPU."""
    frame = tables["outliers"]
    of_gpu = (frame["rank"] == row["rank"]) & (frame["device_id"] == row["device_id"])
    within = frame["start_ns"].between(row["window_start_ns"], row["window_end_ns"])
    return records(frame[of_gpu & within & ~frame["communication"].astype(bool)])
