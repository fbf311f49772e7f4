"""What idle times of ranks side by side show: all idle at once, a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.analyses.collectives.stages import may_be_stages
from nsys_llm.report.findings import Evidence, cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import format_ns, format_percent

from .texts import NTP_NS, TIED_SHARE, TOGETHER_PCT

_NTP_CLOCK: Final = "utcEpochNs"


@dataclass(frozen=True)
class PipelineRanks:
    """Whether ranks are stages of a pipeline, as far as their sends and receives show it.

    Attributes:
        several: Three ranks or more send and receive as a chain of stages does.
        may_be_two: Two ranks send and receive, and the one that is idle most is not so while the
            other is: they may be stages, of which one works while the other waits.
    """

    several: bool = False
    may_be_two: bool = False

    @classmethod
    def of(cls, tables: Tables) -> PipelineRanks:
        """Look at the tables devices and common_idle."""
        transfers_n = tables["devices"].groupby("rank", sort=True)["transfers_n"].sum().astype(int)
        staged, two = may_be_stages(transfers_n.tolist()), len(transfers_n) == 2
        return cls(staged and not two, staged and two and not _idle_at_once(tables))


def _idle_at_once(tables: Tables) -> bool:
    """Return whether the rank that is idle most is so when the others are, beyond chance.

    That a rank which is hardly idle is so at the same time says nothing of the other one's waits.
    """
    together_ns = _beyond_chance(tables)["total_ns"].max()
    idle_ns = tables["devices"].groupby("rank", sort=True)["idle_ns"].max().max()
    return bool(together_ns >= TIED_SHARE * idle_ns)


def together_words(tables: Tables) -> tuple[str, tuple[Evidence, ...], dict[str, float]]:
    """Return words about all ranks being idle at once, which points to what they share.

    Beside them, the cells and other numbers that they name.
    """
    rows = _beyond_chance(tables)
    rows = rows[rows["total_pct"] >= TOGETHER_PCT]
    if rows.empty:
        return "", (), {}
    row = records(rows.head(1))[0]
    agreement, numbers = _clocks(tables, row)
    return (
        f" All ranks are idle at once for {format_percent(row['total_pct'])} of the time, which "
        f"points to a reason that they share (scheduler, data, a barrier).{agreement}",
        cells("common_idle", row, ("clock",), ("total_pct",)),
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


def _beyond_chance(tables: Tables) -> pd.DataFrame:
    """Return the common idle time where it is longer than that of independent ranks."""
    rows = tables["common_idle"]
    rows = rows[(rows["clock"] != _NTP_CLOCK) | (rows["longest_ns"].fillna(0) >= NTP_NS)]
    more = rows["total_pct"] - rows["chance_pct"]
    possible = rows["possible_pct"] - rows["chance_pct"]
    return rows[(rows["total_pct"] > rows["chance_most_pct"]) & (more >= TIED_SHARE * possible)]
