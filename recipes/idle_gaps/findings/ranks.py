"""Findings about ranks beside each other: one idles more, all stand still, all wait for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pandas as pd

from nsys_llm.analyses.collectives.stages import end_stages, may_be_two_stages
from nsys_llm.report.findings import Finding
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from ..tables.cross_rank_idle import ALL_IDLE, ONE_BUSY
from .severity import severity_of

_Tables = Mapping[str, pd.DataFrame]

#: Percentage points of the window above the median rank; ranks that do the same differ by less.
_MORE_IDLE_POINTS: Final = 5.0
#: Idle intervals in a clock as exact as NTP (1 to tens of ms between hosts) mean something from
#: here on.
_NTP_NS: Final = 10_000_000
_NTP_CLOCK: Final = "utcEpochNs"
#: Common idle time in all, below which it is not worth a word; see `findings`.
_LEAST_NS: Final = 1_000_000
#: A state that ranks share is no accident from this part on of what there could be beyond chance,
#: and only where it is beyond all that turned ranks had; ours.
_TIED_SHARE: Final = 0.25


def rank_findings(tables: _Tables) -> list[Finding]:
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


def ends_of_pipeline(tables: _Tables) -> frozenset[int]:
    """Return the ranks of first and last stages; empty where ranks are no stages."""
    transfers_n = _transfers_n(tables)
    places = end_stages(transfers_n.tolist())
    return frozenset(int(transfers_n.index[place]) for place in places)


def or_by_schedule(found: Finding, tables: _Tables) -> Finding:
    """Say first that two ranks which send and receive may be idle by the schedule of a pipeline."""
    if not may_be_two_stages(_transfers_n(tables).tolist()):
        return found
    return replace(
        found,
        severity="low" if found.severity in ("high", "medium") else found.severity,
        recommendation="The two ranks send and receive. If tail_stats says that they are stages of "
        "a pipeline, long gaps once a step are the bubble of its schedule. Of what recurs more "
        f"often: {found.recommendation}",
    )


def _transfers_n(tables: _Tables) -> pd.Series[int]:
    return tables["devices"].groupby("rank", sort=True)["transfers_n"].sum()


def _more_idle(tables: _Tables) -> list[Finding]:
    devices = tables["devices"]
    known = devices[devices["known"] & (devices["window_ns"] > 0)]
    by_rank = known.groupby("rank", sort=True)[["idle_ns", "window_ns"]].sum()
    if len(by_rank) < 2:
        return []
    share = 100.0 * by_rank["idle_ns"] / by_rank["window_ns"]
    rank, most = int(share.idxmax()), float(share.max())
    median = float(share.drop(rank).median())
    if most - median < _MORE_IDLE_POINTS:
        return []
    excess_ns = int(by_rank.loc[rank, "idle_ns"] - median * by_rank.loc[rank, "window_ns"] / 100)
    cause, more_ns = _excess_cause(tables["rank_causes"], rank, list(by_rank.index))
    own = known[known["rank"] == rank].iloc[0]
    others_n = int((share >= median + _MORE_IDLE_POINTS).sum())
    usual = "median of the others" if len(share) > 2 else "other rank"
    return [
        Finding(
            rule="idle_imbalance",
            severity=severity_of(most - median) or "low",
            scope="rank",
            rank=rank,
            window_ns=(int(own["window_start_ns"]), int(own["window_end_ns"])),
            title=f"Rank {rank} is idle more than the others",
            evidence=f"{format_percent(most)} of its window, against {format_percent(median)} of "
            f"the {usual}: {format_ns(excess_ns)} more. "
            f"Most of the difference is {quoted(cause)} ({format_ns(more_ns)} above the {usual}). "
            f"{format_count(others_n)} of {counted(len(share), 'rank')} are that much above it.",
            tables=("devices", "rank_causes"),
            recommendation="If it has less to compute than the others, its share of the work is "
            "too small; if its host is late, look at its cores, its data, and what else runs on "
            "that machine.",
            impact_ns=excess_ns,
        )
    ]


def _excess_cause(causes: pd.DataFrame, rank: int, ranks: list[int]) -> tuple[str, int]:
    """Return the cause of which a rank has most above the median of the others, and how much."""
    wide = causes.pivot_table(index="rank", columns="cause", values="idle_ns", aggfunc="sum")
    wide = wide.reindex(ranks).fillna(0)
    more = wide.loc[rank] - wide.drop(rank).median()
    return str(more.idxmax()), int(more.max())


def _standstill(tables: _Tables) -> list[Finding]:
    common = tables["common_idle"]
    rows = common[(common["kind"] == ALL_IDLE) & (common["total_ns"] >= _LEAST_NS)]
    rows = rows[(rows["clock"] != _NTP_CLOCK) | (rows["longest_ns"].fillna(0) >= _NTP_NS)]
    rows = rows[_beyond_chance(rows)]
    if rows.empty or (severity := severity_of(float(rows["total_pct"].iloc[0]))) is None:
        return []
    row = rows.iloc[0]
    return [
        Finding(
            rule="standstill",
            severity=severity,
            scope="run",
            rank=int(row["window_rank"]),
            window_ns=(int(row["window_start_ns"]), int(row["window_end_ns"])),
            title=f"All ranks stand still at once for {format_percent(row['total_pct'])} of the "
            "time",
            evidence=f"{format_ns(row['total_ns'])} of {format_ns(row['span_ns'])} in "
            f"{format_count(row['spells_n'])} stretches in which none of "
            f"{counted(row['ranks_n'], 'rank')} ran anything, the longest "
            f"{format_ns(row['longest_ns'])} (clock: {row['clock']}). {_chance_words(row)}",
            tables=("common_idle", "common_gaps"),
            recommendation="What stops all ranks together is shared: the scheduler, the data "
            "loader, a barrier on the host, a checkpoint. Let it run ahead of the step (async "
            "scheduling, prefetch).",
            impact_ns=int(row["total_ns"]) * int(row["ranks_n"]),
        )
    ]


def _beyond_chance(rows: pd.DataFrame) -> pd.Series:
    """Tell which states last longer than they would on ranks that know nothing of each other."""
    more = rows["total_pct"] - rows["chance_pct"]
    possible = rows["possible_pct"] - rows["chance_pct"]
    return (rows["total_pct"] > rows["chance_most_pct"]) & (more >= _TIED_SHARE * possible)


def _chance_words(row: pd.Series) -> str:
    return (
        f"Independent ranks that are idle as much would have {format_percent(row['chance_pct'])}."
    )


def _late_rank(tables: _Tables) -> list[Finding]:
    common = tables["common_idle"]
    rows = common[(common["kind"] == ONE_BUSY) & (common["total_ns"] >= _LEAST_NS)]
    rows = rows[(rows["clock"] != _NTP_CLOCK) | (rows["longest_ns"].fillna(0) >= _NTP_NS)]
    rows = rows[(rows["ranks_n"] > 2) & _beyond_chance(rows)]
    if rows.empty or (severity := severity_of(float(rows["total_pct"].iloc[0]))) is None:
        return []
    row = rows.iloc[0]
    return [
        Finding(
            rule="late_rank",
            severity=severity,
            scope="rank",
            rank=int(row["rank"]),
            window_ns=(int(row["window_start_ns"]), int(row["window_end_ns"])),
            title=f"All other ranks are idle while rank {row['rank']} works",
            evidence=f"{format_ns(row['total_ns'])}, {format_percent(row['total_pct'])} of the "
            f"time, in {format_count(row['spells_n'])} stretches, the longest "
            f"{format_ns(row['longest_ns'])} (clock: {row['clock']}). {_chance_words(row)}",
            tables=("common_idle", "common_gaps"),
            recommendation="This rank has work of its own that the others wait for (sampling, "
            "logits, a pipeline stage): share it out, or overlap it with the next step.",
            impact_ns=int(row["total_ns"]) * (int(row["ranks_n"]) - 1),
        )
    ]
