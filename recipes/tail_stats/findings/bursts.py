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
from nsys_llm.view.text import (
    counted,
    format_count,
    format_instant,
    format_ns,
    format_percent,
    quoted,
    shortened,
)

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
            details=f"{format_count(worst['outliers_n'])} of "
            f"{counted(outliers_n, 'launch', 'launches')} over twice the median of their "
            f"configuration, with {format_percent(worst['launches_pct'])} of all launches. They "
            f"take {format_ns(lost_ns)} beyond it; communication is left out.",
            fields={"rank": worst["rank"], "share": format_percent(worst["outliers_pct"])},
            evidence=cells(
                "tail_ranks",
                worst,
                _PLACE,
                ("outliers_n", "outliers_pct", "launches_pct", "outlier_excess_ns"),
            ),
            numbers={"all_outliers_n": outliers_n},
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
    lasting_ns = row["window_end_ns"] - row["window_start_ns"]
    return RULES["outlier_cluster"].finding(
        change=Change("launches", row["name"], time_ns=row["device_excess_ns"]),
        details=f"Chance would put {row['expected']:.2g} there. {_burst_words(row)}",
        fields={
            "outliers": counted(row["outliers_n"], "launch", "launches"),
            "where": _ranks_words(row),
            "duration": format_ns(lasting_ns),
        },
        case="beside" if row["likely_cause"].startswith("shared") else None,
        evidence=_cells(row, "outliers_n", "expected"),
        numbers={"lasting_ns": lasting_ns},
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
        details=f"They last {format_ns(lasting_ns)} in the median, and cost rank {worst['rank']} "
        f"{format_ns(lost_ns)} in all. The costliest has {format_count(worst['outliers_n'])} such "
        f"launches; chance would put {worst['expected']:.2g} there. {_burst_words(worst)}",
        fields={
            "bursts": counted(len(rows), "burst"),
            "where": _ranks_words(worst),
            "when": f", one every {format_ns(usual_ns)}" if regular else "",
        },
        case="recurring",
        evidence=_cells(worst, "outliers_n", "expected"),
        numbers={
            "bursts_n": len(rows),
            "apart_ns": usual_ns,
            "lasting_ns": lasting_ns,
            "lost_ns": lost_ns,
        },
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


def _ranks_words(row: Record) -> str:
    return f"rank {row['rank']}" if row["ranks_n"] == 1 else counted(row["ranks_n"], "rank")


def _burst_words(row: Record) -> str:
    together = "" if row["ranks_n"] == 1 else f" (ranks {quoted(row['ranks'])})"
    return (
        f"They are of {counted(row['kernels_n'], 'kernel')}, {quoted(shortened(row['name']))} the "
        f"most{together}, and take {format_ns(row['device_excess_ns'])} beyond their medians on "
        f"rank {row['rank']}. Most of them: {row['likely_cause']}. From "
        f"{format_instant(row['window_start_ns'])} to {format_instant(row['window_end_ns'])} in "
        f"the profile of rank {row['rank']}."
    )
