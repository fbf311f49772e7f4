"""Findings on launches over twice their median: bursts, and ranks that have most of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Evidence, Finding, cells
from nsys_llm.report.records import Record, Tables, grouped, records, window_of
from nsys_llm.report.walls import Gpu
from nsys_llm.view.text import counted, shortened

from .kernels import is_other_work
from .members import gpu_of
from .texts import (
    CONCENTRATED_PCT,
    CONCENTRATED_RATIO,
    LEAST_OUTLIERS,
    MOST,
    RECURS,
    REGULAR,
    RULES,
)

_PLACE: Final = ("rank", "device_id")


def _where(row: Record) -> dict[str, Any]:
    rank, device_id = gpu_of(row)
    return {
        "cause": Cause("kernels", rank, device_id, row.get("name")),
        "rank": rank,
        "device_id": device_id,
        "window_ns": window_of(row, "window_start_ns", "window_end_ns"),
    }


def concentrated_findings(tables: Tables, named: Collection[Gpu]) -> list[Finding]:
    """Return the rank that has most of all slow launches, if it is not named for something else.

    Args:
        named: GPUs that other findings are about.
    """
    ranks = [row for row in records(tables["tail_ranks"]) if row["launches_n"]]
    # Devices of one process have different work as a rule: nothing to compare a rank with.
    if len({row["rank"] for row in ranks}) < 2:
        return []
    outliers_n = sum(row["outliers_n"] for row in ranks)
    worst = max(ranks, key=lambda row: (row["outliers_n"], -row["rank"]))
    least_pct = max(CONCENTRATED_PCT, CONCENTRATED_RATIO * (worst["launches_pct"] or 0.0))
    if gpu_of(worst) in named or outliers_n < LEAST_OUTLIERS or worst["outliers_pct"] < least_pct:
        return []
    lost_ns = worst["outlier_excess_ns"]
    if 2 * _other_work_ns(tables, worst) > lost_ns:
        return []
    return [
        RULES["outliers_on_one_rank"].finding(
            change=Change("launches", time_ns=lost_ns),
            fields={"all_outliers_n": outliers_n},
            evidence=cells(
                "tail_ranks",
                worst,
                _PLACE,
                ("outliers_n", "outliers_pct", "launches_pct", "outlier_excess_ns"),
            ),
            **_where(worst),
            impact_ns=lost_ns,
        )
    ]


def _other_work_ns(tables: Tables, place: Record) -> int:
    rows = tables["rank_tails"]
    rows = rows[(rows["rank"] == place["rank"]) & (rows["device_id"] == place["device_id"])]
    rows = rows[is_other_work(rows) & ~rows["communication"].astype(bool)]
    return int(rows["outlier_excess_ns"].sum())


def burst_findings(tables: Tables, named: Collection[Gpu]) -> list[Finding]:
    """Return the costliest bursts; those that recur on the same ranks are one finding."""
    rows = [row for row in records(tables["outlier_clusters"]) if gpu_of(row) not in named]
    reported = [
        finding
        for alike in grouped(rows, "ranks", "rank", "device_id").values()
        for finding in (
            [_recurring(alike)] if len(alike) >= RECURS else [_burst(row) for row in alike]
        )
    ]
    return sorted(reported, key=lambda finding: -finding.impact_ns)[:MOST]


def _burst(row: Record) -> Finding:
    return RULES["outlier_cluster"].finding(
        change=Change("launches", row["name"], time_ns=row["device_excess_ns"]),
        fields={"lasting_ns": row["window_end_ns"] - row["window_start_ns"], **_words(row)},
        case="beside" if row["likely_cause"].startswith("shared") else None,
        evidence=_cells(row, "outliers_n", "expected"),
        name=row["name"],
        **_where(row),
        impact_ns=row["device_excess_ns"],
    )


def _recurring(rows: Sequence[Record]) -> Finding:
    """Return one finding about bursts on the same ranks, the costliest first."""
    worst = rows[0]
    starts = sorted(row["window_start_ns"] for row in rows)
    apart = sorted(later - before for before, later in pairwise(starts))
    usual_ns = median(apart)
    regular = apart[-1] - apart[0] <= REGULAR * usual_ns
    lost_ns = sum(row["device_excess_ns"] for row in rows)
    lasting_ns = median(row["window_end_ns"] - row["window_start_ns"] for row in rows)
    return RULES["outlier_cluster"].finding(
        change=Change("launches", worst["name"], time_ns=lost_ns),
        fields={
            "bursts_n": len(rows),
            "apart_ns": usual_ns,
            "every_ns": usual_ns if regular else None,
            "lasting_ns": lasting_ns,
            "lost_ns": lost_ns,
            **_words(worst),
        },
        case="recurring",
        evidence=_cells(worst, "outliers_n", "expected"),
        name=worst["name"],
        **_where(worst),
        impact_ns=lost_ns,
    )


def _cells(row: Record, *columns: str) -> tuple[Evidence, ...]:
    return cells(
        "outlier_clusters",
        row,
        ("rank", "window_start_ns"),
        (*columns, "kernels_n", "ranks_n", "device_excess_ns", "window_end_ns"),
    )


def _words(row: Record) -> dict[str, str]:
    alone = row["ranks_n"] == 1
    return {
        "where": f"rank {row['rank']}" if alone else counted(row["ranks_n"], "rank"),
        "kernel": shortened(row["name"]),
        "together": "" if alone else row["ranks"],
        "likely_cause": row["likely_cause"],
    }
