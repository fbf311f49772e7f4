"""Findings about ranks beside each other: one idles more, all stand still, all wait for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pandas as pd

from nsys_llm.analyses.collectives.stages import end_stages, may_be_two_stages
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables, severity_of
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from ..tables.cross_rank_idle import ALL_IDLE, ONE_BUSY
from .texts import BY_SCHEDULE, IDLE_PCT, LEAST_NS, MORE_IDLE_POINTS, NTP_NS, RULES, TIED_SHARE

_NTP_CLOCK: Final = "utcEpochNs"


def rank_findings(tables: Tables) -> list[Finding]:
    """Return what the tables devices, rank_causes and common_idle tell of ranks.

    The first and the last stage of a pipeline are idle by schedule, and any stage works alone when
    it is its turn: neither is told then. `tail_stats` has the bubble.
    """
    ends = ends_of_pipeline(tables)
    return [
        *(or_by_schedule(one, tables) for one in _more_idle(tables) if one.rank not in ends),
        *_standstill(tables),
        *([] if ends else _late_rank(tables)),
    ]


def ends_of_pipeline(tables: Tables) -> frozenset[int]:
    """Return the ranks of first and last stages; empty where ranks are no stages."""
    transfers_n = _transfers_n(tables)
    places = end_stages(transfers_n.tolist())
    return frozenset(int(transfers_n.index[place]) for place in places)


def or_by_schedule(found: Finding, tables: Tables) -> Finding:
    """Say first that two ranks which send and receive may be idle by the schedule of a pipeline."""
    if not may_be_two_stages(_transfers_n(tables).tolist()):
        return found
    return replace(
        found,
        severity="low" if found.severity in ("high", "medium") else found.severity,
        recommendation=BY_SCHEDULE.format(advice=found.recommendation),
    )


def _transfers_n(tables: Tables) -> pd.Series[int]:
    return tables["devices"].groupby("rank", sort=True)["transfers_n"].sum()


def _more_idle(tables: Tables) -> list[Finding]:
    devices = tables["devices"]
    known = devices[devices["known"] & (devices["window_ns"] > 0)]
    by_rank = known.groupby("rank", sort=True)[["idle_ns", "window_ns"]].sum()
    if len(by_rank) < 2:
        return []
    share = 100.0 * by_rank["idle_ns"] / by_rank["window_ns"]
    rank, most = int(share.idxmax()), float(share.max())
    median = float(share.drop(rank).median())
    if most - median < MORE_IDLE_POINTS:
        return []
    excess_ns = int(by_rank.loc[rank, "idle_ns"] - median * by_rank.loc[rank, "window_ns"] / 100)
    cause, more_ns = _excess_cause(tables["rank_causes"], rank, list(by_rank.index))
    own = known[known["rank"] == rank].iloc[0]
    others_n = int((share >= median + MORE_IDLE_POINTS).sum())
    usual = "median of the others" if len(share) > 2 else "other rank"
    return [
        RULES["idle_imbalance"].finding(
            severity=severity_of(most - median, IDLE_PCT) or "low",
            details=f"{format_percent(most)} of its window, against {format_percent(median)} of "
            f"the {usual}: {format_ns(excess_ns)} more. "
            f"Most of the difference is {quoted(cause)} ({format_ns(more_ns)} above the {usual}). "
            f"{format_count(others_n)} of {counted(len(share), 'rank')} are that much above it.",
            fields={"rank": rank},
            rank=rank,
            window_ns=(int(own["window_start_ns"]), int(own["window_end_ns"])),
            impact_ns=excess_ns,
        )
    ]


def _excess_cause(causes: pd.DataFrame, rank: int, ranks: list[int]) -> tuple[str, int]:
    """Return the cause of which a rank has most above the median of the others, and how much."""
    wide = causes.pivot_table(index="rank", columns="cause", values="idle_ns", aggfunc="sum")
    wide = wide.reindex(ranks).fillna(0)
    more = wide.loc[rank] - wide.drop(rank).median()
    return str(more.idxmax()), int(more.max())


def _standstill(tables: Tables) -> list[Finding]:
    common = tables["common_idle"]
    rows = common[(common["kind"] == ALL_IDLE) & (common["total_ns"] >= LEAST_NS)]
    rows = rows[(rows["clock"] != _NTP_CLOCK) | (rows["longest_ns"].fillna(0) >= NTP_NS)]
    rows = rows[_beyond_chance(rows)]
    if rows.empty or (severity := severity_of(float(rows["total_pct"].iloc[0]), IDLE_PCT)) is None:
        return []
    row = rows.iloc[0]
    return [
        RULES["standstill"].finding(
            severity=severity,
            details=f"{format_ns(row['total_ns'])} of {format_ns(row['span_ns'])} in "
            f"{format_count(row['spells_n'])} stretches in which none of "
            f"{counted(row['ranks_n'], 'rank')} ran anything, the longest "
            f"{format_ns(row['longest_ns'])} (clock: {row['clock']}). {_chance_words(row)}",
            fields={"share": format_percent(row["total_pct"])},
            rank=int(row["window_rank"]),
            window_ns=(int(row["window_start_ns"]), int(row["window_end_ns"])),
            impact_ns=int(row["total_ns"]) * int(row["ranks_n"]),
        )
    ]


def _beyond_chance(rows: pd.DataFrame) -> pd.Series:
    """Tell which states last longer than they would on ranks that know nothing of each other."""
    more = rows["total_pct"] - rows["chance_pct"]
    possible = rows["possible_pct"] - rows["chance_pct"]
    return (rows["total_pct"] > rows["chance_most_pct"]) & (more >= TIED_SHARE * possible)


def _chance_words(row: pd.Series) -> str:
    return (
        f"Independent ranks that are idle as much would have {format_percent(row['chance_pct'])}."
    )


def _late_rank(tables: Tables) -> list[Finding]:
    common = tables["common_idle"]
    rows = common[(common["kind"] == ONE_BUSY) & (common["total_ns"] >= LEAST_NS)]
    rows = rows[(rows["clock"] != _NTP_CLOCK) | (rows["longest_ns"].fillna(0) >= NTP_NS)]
    rows = rows[(rows["ranks_n"] > 2) & _beyond_chance(rows)]
    if rows.empty or (severity := severity_of(float(rows["total_pct"].iloc[0]), IDLE_PCT)) is None:
        return []
    row = rows.iloc[0]
    return [
        RULES["late_rank"].finding(
            severity=severity,
            details=f"{format_ns(row['total_ns'])}, {format_percent(row['total_pct'])} of the "
            f"time, in {format_count(row['spells_n'])} stretches, the longest "
            f"{format_ns(row['longest_ns'])} (clock: {row['clock']}). {_chance_words(row)}",
            fields={"rank": row["rank"]},
            rank=int(row["rank"]),
            window_ns=(int(row["window_start_ns"]), int(row["window_end_ns"])),
            impact_ns=int(row["total_ns"]) * (int(row["ranks_n"]) - 1),
        )
    ]
