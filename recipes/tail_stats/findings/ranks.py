"""Findings on where and when tails are: one rank, or a short time. Reads finished tables only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, grouped, records, severity_of, window_of
from nsys_llm.view.text import (
    counted,
    format_count,
    format_instant,
    format_ns,
    format_percent,
    quoted,
    shortened,
)

from .paces import Pace, pace_of
from .texts import (
    BURSTS_TITLE,
    CONCENTRATED_PCT,
    CONCENTRATED_RATIO,
    LEAST_OUTLIERS,
    MOST,
    RANK_COST_PCT,
    RECURS,
    REGULAR,
    REGULAR_ADVICE,
    RULES,
    SLOW_RATIO,
)


def rank_findings(tables: Tables) -> list[Finding]:
    """Return the findings on tail_ranks and outlier_clusters."""
    ranks = records(tables["tail_ranks"])
    slow = _longer(tables, ranks)
    slow_ones = {(one.rank, one.device_id) for one in slow}
    return [*slow, *_concentrated(ranks, slow_ones), *_clusters(tables)]


def _longer(tables: Tables, ranks: Sequence[Record]) -> list[Finding]:
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
    return found[:MOST]


def _slow_throughout(row: Record, pace: Pace, severity: str) -> Finding:
    more = format_percent(100.0 * (pace.ratio - 1))
    return RULES["slow_throughout"].finding(
        severity=severity,
        details="Weighted by time, over "
        f"{counted(row['launches_n'], 'launch', 'launches')}, each against its "
        f"configuration on the other ranks. It has {format_percent(row['excess_pct'])} of all "
        f"time beyond the medians ({format_ns(row['excess_ns'])}) with "
        f"{format_percent(row['launches_pct'])} of the launches; communication is left "
        "out.",
        fields={"rank": row["rank"], "more": more},
        rank=row["rank"],
        device_id=row["device_id"],
        window_ns=window_of(row, "window_start_ns", "window_end_ns"),
        impact_ns=row["excess_ns"],
    )


def _uneven(row: Record, pace: Pace, severity: str) -> Finding:
    name, times = pace.uneven[0]
    others_n = pace.kernels_n - len(pace.uneven)
    return RULES["uneven_work"].finding(
        severity=severity,
        details=f"{quoted(shortened(name))} takes {times:.2f} times as long as on the other ranks "
        f"in the same configuration, and {format_ns(pace.uneven_ns)} more in all such kernels. "
        f"{counted(others_n, 'other kernel')} of rank {row['rank']} "
        f"{'is' if others_n == 1 else 'are'} as fast as elsewhere, so its GPU is not slow.",
        fields={"rank": row["rank"], "kernels": pace.words()},
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
    if worst is None or len(ranks) < 2 or outliers_n < LEAST_OUTLIERS:
        return []
    if (worst["rank"], worst["device_id"]) in slow:
        return []
    usual_pct = worst["launches_pct"]
    if worst["outliers_pct"] < max(CONCENTRATED_PCT, CONCENTRATED_RATIO * usual_pct):
        return []
    cost_pct = 100.0 * worst["outlier_excess_ns"] / max(worst["total_ns"], 1)
    return [
        RULES["outliers_on_one_rank"].finding(
            severity=severity_of(cost_pct, RANK_COST_PCT) or "low",
            details=f"{format_count(worst['outliers_n'])} of "
            f"{counted(outliers_n, 'launch', 'launches')} longer than twice the median of their "
            f"configuration, with {format_percent(usual_pct)} of the launches. They cost it "
            f"{format_ns(worst['outlier_excess_ns'])}; communication is left out.",
            fields={"rank": worst["rank"], "share": format_percent(worst["outliers_pct"])},
            rank=worst["rank"],
            device_id=worst["device_id"],
            window_ns=window_of(worst, "window_start_ns", "window_end_ns"),
            impact_ns=worst["outlier_excess_ns"],
        )
    ]


def _clusters(tables: Tables) -> list[Finding]:
    """Return the costliest bursts; those that recur on the same ranks are one finding."""
    total_ns = int(tables["tail_ranks"]["total_ns"].sum())
    alike = grouped(records(tables["outlier_clusters"]), "ranks").values()
    found = [
        finding
        for rows in alike
        for finding in (
            [_recurring(rows, total_ns)]
            if len(rows) >= RECURS
            else [_cluster(row, total_ns) for row in rows]
        )
    ]
    return sorted(found, key=lambda one: -one.impact_ns)[:MOST]


def _recurring(rows: Sequence[Record], total_ns: int) -> Finding:
    """Return one finding about bursts on the same ranks, the costliest first."""
    worst = rows[0]
    one = _cluster(worst, total_ns)
    starts = sorted(row["window_start_ns"] for row in rows if row["rank"] == worst["rank"])
    apart = sorted(later - before for before, later in pairwise(starts))
    usual_ns = median(apart) if apart else 0
    regular = apart and apart[-1] - apart[0] <= REGULAR * usual_ns
    when = f", one every {format_ns(usual_ns)}" if regular else ""
    where = f"rank {worst['rank']}" if worst["ranks_n"] == 1 else counted(worst["ranks_n"], "rank")
    outliers_n = sum(row["outliers_n"] for row in rows)
    excess_ns = sum(row["excess_ns"] for row in rows)
    lasting = median(row["window_end_ns"] - row["window_start_ns"] for row in rows)
    return replace(
        one,
        severity=severity_of(100.0 * excess_ns / max(total_ns, 1), RANK_COST_PCT) or "low",
        title=BURSTS_TITLE.format(bursts=counted(len(rows), "burst"), where=where, when=when),
        details=f"{format_count(outliers_n)} outliers in bursts of {format_ns(lasting)} in the "
        f"median take {format_ns(excess_ns)} beyond their medians. The costliest has "
        f"{format_count(worst['outliers_n'])}. {one.details}",
        recommendation=REGULAR_ADVICE.format(advice=one.recommendation)
        if regular
        else one.recommendation,
        impact_ns=excess_ns,
    )


def _cluster(row: Record, total_ns: int) -> Finding:
    where = f"rank {row['rank']}" if row["ranks_n"] == 1 else counted(row["ranks_n"], "rank")
    lasting = format_ns(row["window_end_ns"] - row["window_start_ns"])
    kernels = f"{counted(row['kernels_n'], 'kernel')}, {quoted(shortened(row['name']))} the most"
    together = "" if row["ranks_n"] == 1 else f" (ranks {row['ranks']})"
    return RULES["outlier_cluster"].finding(
        severity=severity_of(100.0 * row["excess_ns"] / max(total_ns, 1), RANK_COST_PCT) or "low",
        details=f"Chance would put {row['expected']:.2g} there. They are of {kernels}{together}, "
        f"and take {format_ns(row['excess_ns'])} beyond their medians. Most of them: "
        f"{row['likely_cause']}. From {format_instant(row['window_start_ns'])} to "
        f"{format_instant(row['window_end_ns'])} in the report of rank {row['rank']}.",
        fields={
            "outliers": counted(row["outliers_n"], "outlier"),
            "where": where,
            "duration": lasting,
        },
        case="beside" if row["likely_cause"].startswith("shared") else None,
        rank=row["rank"],
        name=row["name"],
        window_ns=(row["window_start_ns"], row["window_end_ns"]),
        impact_ns=row["excess_ns"],
    )
