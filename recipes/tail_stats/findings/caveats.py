"""What to know before reading the numbers of tail_stats. Reads finished tables only."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.numeric.tails import LEAST_VALUES_OF_A_TAIL
from nsys_llm.report.records import Tables, records
from nsys_llm.view.text import counted, format_percent, quoted, ranks_words

from ..tables.shown import LEAST_PCT, REST

#: Share of the kernel time in configurations with few launches from which it is said, in percent.
_FEW_PCT: Final = 50.0
#: Ranks that a sentence lists.


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    return [
        *_few_launches(tables["tails"]),
        *_many_configurations(tables["tails"]),
        *_no_steps(tables["tail_ranks"]),
        *_stages(tables["rank_verdicts"]),
    ]


def _few_launches(tails: pd.DataFrame) -> list[str]:
    few = (tails["launches_n"] < LEAST_VALUES_OF_A_TAIL) & (tails["name"] != REST)
    total_ns = int(tails["total_ns"].sum())
    few_pct = 100.0 * int(tails.loc[few, "total_ns"].sum()) / total_ns if total_ns else 0.0
    if few_pct < _FEW_PCT:
        return []
    return [
        f"{counted(int(few.sum()), 'configuration')} with {format_percent(few_pct)} of the kernel "
        f"time {'has' if int(few.sum()) == 1 else 'have'} fewer than {LEAST_VALUES_OF_A_TAIL} "
        "launches: their 99th percentile is practically their longest launch."
    ]


def _many_configurations(tails: pd.DataFrame) -> list[str]:
    return [
        f"{row['config']} with less than {LEAST_PCT} % of the kernel time of every rank each, and "
        f"without much in slow launches, take {format_percent(row['total_pct'])} together: one row "
        f"of `tails`, {quoted(REST)}, has their sums."
        for row in records(tails[tails["name"] == REST])
    ]


def _no_steps(ranks: pd.DataFrame) -> list[str]:
    without = ranks.loc[ranks["steps_n"].isna(), "rank"].nunique()
    if not without:
        return []
    return [
        f"No NVTX range repeats on {counted(int(without), 'rank')}, so nothing tells where "
        "warm-up ends: the first two launches of each configuration count as warm-up there. "
        f"{quoted('--step RANGE')} names the steps."
    ]


def _stages(verdicts: pd.DataFrame) -> list[str]:
    staged = verdicts.loc[verdicts["stage"].notna(), "rank"]
    if staged.empty:
        return []
    ranks = ranks_words(sorted(set(staged))).capitalize()
    return [
        f"{ranks} are stages of a pipeline, which wait for each other by schedule: none is "
        "late for that. `comm_stats` says what the schedule costs."
    ]
