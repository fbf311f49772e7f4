"""What idle times of ranks side by side show: all idle at once, all idle but one, a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.analyses.collectives.stages import end_stages, may_be_two_stages
from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Evidence, Finding, cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.view.text import format_count, format_ns, format_percent

from ..tables.cross_rank_idle import ALL_IDLE, ONE_BUSY
from .texts import NTP_NS, RULES, TIED_SHARE, TOGETHER_PCT

_NTP_CLOCK: Final = "utcEpochNs"
_WHERE: Final = ("kind", "rank")


@dataclass(frozen=True)
class PipelineRanks:
    """Whether ranks are stages of a pipeline, as far as their sends and receives show it.

    Attributes:
        ends: The ranks of first and last stages; empty where ranks are no stages.
        may_be_two: Two ranks send and receive, and the one that is idle most is not so while the
            other is: they may be stages, of which one works while the other waits.
    """

    ends: frozenset[int] = frozenset()
    may_be_two: bool = False

    @classmethod
    def of(cls, tables: Tables) -> PipelineRanks:
        """Look at the tables devices and common_idle."""
        transfers_n = tables["devices"].groupby("rank", sort=True)["transfers_n"].sum().astype(int)
        places = end_stages(transfers_n.tolist())
        return cls(
            frozenset(int(transfers_n.index[place]) for place in places),
            may_be_two_stages(transfers_n.tolist()) and not _idle_at_once(tables),
        )


def _idle_at_once(tables: Tables) -> bool:
    """Return whether the rank that is idle most is so when the others are, beyond chance.

    That a rank which is hardly idle is so at the same time says nothing of the other one's waits.
    """
    together_ns = _beyond_chance(tables, ALL_IDLE)["total_ns"].max()
    idle_ns = tables["devices"].groupby("rank", sort=True)["idle_ns"].max().max()
    return bool(together_ns >= TIED_SHARE * idle_ns)


def late_rank_findings(tables: Tables, stages: PipelineRanks) -> list[Finding]:
    """Return the finding that all other ranks are idle while one works, if they are.

    Any stage of a pipeline works alone when it is its turn.
    """
    rows = _beyond_chance(tables, ONE_BUSY)
    rows = rows[rows["ranks_n"] > 2]
    if rows.empty or stages.ends:
        return []
    row = records(rows.head(1))[0]
    waiting = _waiting_gpu(tables, int(row["rank"]))
    if waiting is None:
        return []
    gpu = waiting
    columns = ("total_ns", "total_pct", "intervals_n", "longest_ns", "chance_pct")
    agreement, numbers = _clocks(tables, row)
    return [
        RULES["late_rank"].finding(
            cause=Cause("rank", int(row["rank"])),
            change=Change("unknown", time_ns=row["total_ns"], wall_classes=(IDLE,)),
            details=f"{format_ns(row['total_ns'])} in {format_count(row['intervals_n'])} times, "
            f"the longest {format_ns(row['longest_ns'])} (clock: {row['clock']}). "
            f"Independent ranks would be so for {format_percent(row['chance_pct'])} of the time."
            f"{agreement}",
            fields={"rank": row["rank"], "share": format_percent(row["total_pct"])},
            evidence=cells("common_idle", row, _WHERE, columns),
            numbers=numbers,
            rank=gpu[0],
            device_id=gpu[1],
            window_ns=_window(tables, row, gpu[0]),
            impact_ns=int(row["total_ns"]),
        )
    ]


def together_words(tables: Tables) -> tuple[str, tuple[Evidence, ...], dict[str, float]]:
    """Return words about all ranks being idle at once, which points to what they share.

    Beside them, the cells and other numbers that they name.
    """
    rows = _beyond_chance(tables, ALL_IDLE)
    rows = rows[rows["total_pct"] >= TOGETHER_PCT]
    if rows.empty:
        return "", (), {}
    row = records(rows.head(1))[0]
    agreement, numbers = _clocks(tables, row)
    return (
        f" All ranks are idle at once for {format_percent(row['total_pct'])} of the time, which "
        f"points to a reason that they share (scheduler, data, a barrier).{agreement}",
        cells("common_idle", row, ("kind",), ("total_pct",)),
        numbers,
    )


def _clocks(tables: Tables, row: Record) -> tuple[str, dict[str, float]]:
    """Say how well the clocks of ranks agree; nothing where there is one clock, or none is off.

    Host and GPU disagree on each rank by as much as kernels start before their launch calls begin;
    between hosts, NTP comes on top.
    """
    coverage = tables["coverage"]
    by_rank = coverage.groupby("rank", sort=True)["early_start_p99_ns"].max()
    error_ns = int(by_rank.nlargest(2).sum())
    error_ns += NTP_NS if row["clock"] == _NTP_CLOCK else 0
    if not error_ns:
        return "", {}
    return f" Clocks agree to {format_ns(error_ns)}.", {"clock_error_ns": error_ns}


def _waiting_gpu(tables: Tables, late: int) -> tuple[int, int] | None:
    """Return the GPU of the other ranks that is idle most."""
    wall = tables["wall"]
    idle = wall[(wall["wall_class"] == IDLE) & (wall["rank"] != late) & wall["detail"].notna()]
    if idle.empty:
        return None
    rank, device = idle.groupby(["rank", "device_id"], sort=True)["time_ns"].sum().idxmax()
    return int(rank), int(device)


def _beyond_chance(tables: Tables, kind: str) -> pd.DataFrame:
    """Return states that last longer than they would on independent ranks."""
    common = tables["common_idle"]
    rows = common[common["kind"] == kind]
    rows = rows[(rows["clock"] != _NTP_CLOCK) | (rows["longest_ns"].fillna(0) >= NTP_NS)]
    more = rows["total_pct"] - rows["chance_pct"]
    possible = rows["possible_pct"] - rows["chance_pct"]
    return rows[(rows["total_pct"] > rows["chance_most_pct"]) & (more >= TIED_SHARE * possible)]


def _window(tables: Tables, row: Record, rank: int) -> tuple[int, int] | None:
    """Return where the longest such stretch is, in the clock of a rank's own profile."""
    if row["window_start_ns"] is None:
        return None
    files = tables["files"]["clock_offset_ns"].fillna(0)
    shift_ns = int(files.get(row["window_rank"], 0)) - int(files.get(rank, 0))
    return int(row["window_start_ns"]) + shift_ns, int(row["window_end_ns"]) + shift_ns
