"""Findings on where and when tails are: one rank, or a short time. Reads finished tables only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, grouped, records, severity_of, window_of
from nsys_llm.view.text import (
    counted,
    format_count,
    format_instant,
    format_ns,
    format_percent,
    quoted,
    shortened,
)

from .paces import SLOW_RATIO, Pace, pace_of

_Tables = Mapping[str, pd.DataFrame]

#: Fewer outliers say nothing about where they are.
_LEAST_OUTLIERS: Final = 10
#: Share of all outliers on one device, in percent, and by how much it exceeds its share of the
#: launches, that is no accident; ours.
_CONCENTRATED_PCT: Final = 50.0
_CONCENTRATED_RATIO: Final = 1.6
#: Share of a device's kernel time that outliers cost, in percent; ours.
_COST_PCT: Final = {"high": 2.0, "medium": 0.2}
_MOST: Final = 3
#: So many bursts on the same ranks are one finding; and they are regular where the
#: times between them differ by this part of the usual one at most. Ours.
_RECURS: Final = 3
_REGULAR: Final = 0.5


def rank_findings(tables: _Tables) -> list[Finding]:
    """Return the findings on tail_ranks and outlier_clusters."""
    ranks = records(tables["tail_ranks"])
    slow = _longer(tables, ranks)
    slow_ones = {(one.rank, one.device_id) for one in slow}
    return [*slow, *_concentrated(ranks, slow_ones), *_clusters(tables)]


def _longer(tables: _Tables, ranks: Sequence[Record]) -> list[Finding]:
    """Return ranks whose launches are longer than the others': slow GPUs, and uneven work."""
    if len(ranks) < 2:
        return []
    found = []
    for row in sorted(ranks, key=lambda one: -(one["p50_others_p50"] or 0.0)):
        severity = severity_of(row["p50_others_p50"] or 0.0, SLOW_RATIO)
        if severity is None or not row["launches_n"]:
            continue
        pace = pace_of(tables, row)
        found.append((_uneven if pace.uneven else _slow_throughout)(row, pace, severity))
    return found[:_MOST]


def _slow_throughout(row: Record, pace: Pace, severity: str) -> Finding:
    more = format_percent(100.0 * (pace.ratio - 1))
    return Finding(
        rule="slow_throughout",
        severity=severity,
        scope="device",
        title=f"Rank {row['rank']} is slower throughout: its medians are {more} above "
        "those of the other ranks",
        evidence="Weighted by time, over "
        f"{counted(row['launches_n'], 'launch', 'launches')}, each against its "
        f"configuration on the other ranks. It has {format_percent(row['excess_pct'])} of all "
        f"time beyond the medians ({format_ns(row['excess_ns'])}) with "
        f"{format_percent(row['launches_pct'])} of the launches; communication is left "
        "out.",
        tables=("tail_ranks", "rank_tails"),
        recommendation="This is no tail but a slow GPU, or more work in the same "
        "configurations. Compare its clock, power limit and temperature with the others "
        "(nvidia-smi -q -d CLOCK,PERFORMANCE), and look for another process on it.",
        rank=row["rank"],
        device_id=row["device_id"],
        window_ns=window_of(row, "window_start_ns", "window_end_ns"),
        capture="--gpu-metrics-device=all",
        impact_ns=row["excess_ns"],
    )


def _uneven(row: Record, pace: Pace, severity: str) -> Finding:
    name, times = pace.uneven[0]
    others_n = pace.kernels_n - len(pace.uneven)
    return Finding(
        rule="uneven_work",
        severity=severity,
        scope="kernel",
        title=f"Rank {row['rank']} has more work than the others in {pace.words()}",
        evidence=f"{quoted(shortened(name))} takes {times:.2f} times as long as on the other ranks "
        f"in the same configuration, and {format_ns(pace.uneven_ns)} more in all such kernels. "
        f"{counted(others_n, 'other kernel')} of rank {row['rank']} "
        f"{'is' if others_n == 1 else 'are'} as fast as elsewhere, so its GPU is not slow.",
        tables=("rank_tails", "tail_ranks"),
        recommendation="Look at what decides how much this kernel has to do (experts that get most "
        "tokens, the longer sequences of a batch), and spread it over the ranks.",
        rank=row["rank"],
        device_id=row["device_id"],
        name=name,
        window_ns=window_of(row, "window_start_ns", "window_end_ns"),
        impact_ns=pace.uneven_ns,
    )


def _concentrated(
    ranks: Sequence[Record], slow: set[tuple[int | None, int | None]]
) -> list[Finding]:
    outliers_n = sum(row["outliers_n"] for row in ranks)
    worst = max(ranks, key=lambda row: (row["outliers_n"], -row["rank"]), default=None)
    if worst is None or len(ranks) < 2 or outliers_n < _LEAST_OUTLIERS:
        return []
    if (worst["rank"], worst["device_id"]) in slow:
        return []
    usual_pct = worst["launches_pct"]
    if worst["outliers_pct"] < max(_CONCENTRATED_PCT, _CONCENTRATED_RATIO * usual_pct):
        return []
    cost_pct = 100.0 * worst["outlier_excess_ns"] / max(worst["total_ns"], 1)
    return [
        Finding(
            rule="outliers_on_one_rank",
            severity=severity_of(cost_pct, _COST_PCT) or "low",
            scope="device",
            title=f"Rank {worst['rank']} has {format_percent(worst['outliers_pct'])} of all "
            "outliers",
            evidence=f"{format_count(worst['outliers_n'])} of "
            f"{counted(outliers_n, 'launch', 'launches')} longer than twice the median of their "
            f"configuration, with {format_percent(usual_pct)} of the launches. They cost it "
            f"{format_ns(worst['outlier_excess_ns'])}; communication is left out.",
            tables=("tail_ranks", "outliers"),
            recommendation="Its usual launches are as fast as elsewhere, so something disturbs "
            "this GPU now and then: another process, copies, a clock that drops under load, or "
            "uneven work such as hot experts. `outliers` says what ran beside.",
            rank=worst["rank"],
            device_id=worst["device_id"],
            window_ns=window_of(worst, "window_start_ns", "window_end_ns"),
            capture="--gpu-metrics-device=all",
            impact_ns=worst["outlier_excess_ns"],
        )
    ]


def _clusters(tables: _Tables) -> list[Finding]:
    """Return the costliest bursts; those that recur on the same ranks are one finding."""
    total_ns = int(tables["tail_ranks"]["total_ns"].sum())
    alike = grouped(records(tables["outlier_clusters"]), "ranks").values()
    found = [
        finding
        for rows in alike
        for finding in (
            [_recurring(rows, total_ns)]
            if len(rows) >= _RECURS
            else [_cluster(row, total_ns) for row in rows]
        )
    ]
    return sorted(found, key=lambda one: -one.impact_ns)[:_MOST]


def _recurring(rows: Sequence[Record], total_ns: int) -> Finding:
    """Return one finding about bursts on the same ranks, the costliest first."""
    worst = rows[0]
    one = _cluster(worst, total_ns)
    starts = sorted(row["window_start_ns"] for row in rows if row["rank"] == worst["rank"])
    apart = sorted(later - before for before, later in pairwise(starts))
    usual_ns = median(apart) if apart else 0
    regular = apart and apart[-1] - apart[0] <= _REGULAR * usual_ns
    when = f", one every {format_ns(usual_ns)}" if regular else ""
    where = f"rank {worst['rank']}" if worst["ranks_n"] == 1 else counted(worst["ranks_n"], "rank")
    outliers_n = sum(row["outliers_n"] for row in rows)
    excess_ns = sum(row["excess_ns"] for row in rows)
    lasting = median(row["window_end_ns"] - row["window_start_ns"] for row in rows)
    return replace(
        one,
        severity=severity_of(100.0 * excess_ns / max(total_ns, 1), _COST_PCT) or "low",
        title=f"{counted(len(rows), 'burst')} of outliers on {where}{when}",
        evidence=f"{format_count(outliers_n)} outliers in bursts of {format_ns(lasting)} in the "
        f"median take {format_ns(excess_ns)} beyond their medians. The costliest has "
        f"{format_count(worst['outliers_n'])}. {one.evidence}",
        recommendation=f"What comes again and again at the same distance belongs to a step or to a "
        f"timer. {one.recommendation}"
        if regular
        else one.recommendation,
        impact_ns=excess_ns,
    )


def _cluster(row: Record, total_ns: int) -> Finding:
    where = f"rank {row['rank']}" if row["ranks_n"] == 1 else counted(row["ranks_n"], "rank")
    lasting = format_ns(row["window_end_ns"] - row["window_start_ns"])
    kernels = f"{counted(row['kernels_n'], 'kernel')}, {quoted(shortened(row['name']))} the most"
    together = "" if row["ranks_n"] == 1 else f" (ranks {row['ranks']})"
    shared = row["likely_cause"].startswith("shared")
    return Finding(
        rule="outlier_cluster",
        severity=severity_of(100.0 * row["excess_ns"] / max(total_ns, 1), _COST_PCT) or "low",
        scope="rank",
        title=f"{counted(row['outliers_n'], 'outlier')} on {where} within {lasting}",
        evidence=f"Chance would put {row['expected']:.2g} there. They are of {kernels}{together}, "
        f"and take {format_ns(row['excess_ns'])} beyond their medians. Most of them: "
        f"{row['likely_cause']}. From {format_instant(row['window_start_ns'])} to "
        f"{format_instant(row['window_end_ns'])} in the report of rank {row['rank']}.",
        tables=("outlier_clusters", "outliers"),
        recommendation=(
            "Look at what runs beside them in that window; move it, or limit it."
            if shared
            else "Something held the GPU up for a moment: look in that window for a clock that "
            "drops, another process on the GPU, or a step with other work."
        ),
        rank=row["rank"],
        name=row["name"],
        window_ns=(row["window_start_ns"], row["window_end_ns"]),
        capture="--gpu-metrics-device=all",
        impact_ns=row["excess_ns"],
    )
