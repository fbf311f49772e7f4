"""Rows of the table stragglers to go by. Reads finished tables only."""

from __future__ import annotations

import pandas as pd

from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.report.records import Record, Tables
from nsys_llm.report.walls import Gpu


def gpu_of(row: Record) -> Gpu:
    """Return rank and device of a row."""
    return int(row["rank"]), int(row["device_id"])


def sure_members(tables: Tables) -> pd.DataFrame:
    """Return the rows of stragglers whose collectives surely belong together.

    Those of pipelines are left out: there, coming last blames nobody. So are communicators most of
    whose time was matched with low confidence.
    """
    every = tables["communicators"]
    every = every[~every["staged"]]
    sure = every["confidence"] != LOW_CONFIDENCE
    by_name = every["total_ns"].where(sure, 0).groupby(every["communicator"]).sum()
    total_ns = every["total_ns"].groupby(every["communicator"]).sum()
    reported = 2 * by_name >= total_ns
    ranks = tables["stragglers"]
    return ranks[ranks["communicator"].isin(reported[reported].index)]


def named_gpus(tables: Tables) -> frozenset[Gpu]:
    """Return the GPUs that have a verdict, and for which others may wait."""
    rows = tables["rank_verdicts"]
    rows = rows[rows["verdict"].notna() & (rows[["about_ns", "bound_ns"]].max(axis=1) > 0)]
    return frozenset(zip(rows["rank"].tolist(), rows["device_id"].tolist(), strict=True))


def waited_for(tables: Tables) -> frozenset[Gpu]:
    """Return the GPUs of pipelines, and those that the profiler makes late.

    Who meets them waits by schedule, or for the profiler.
    """
    rows = tables["rank_verdicts"]
    rows = rows[rows["stage"].notna() | (rows["verdict"] == "profiler")]
    return frozenset(zip(rows["rank"].tolist(), rows["device_id"].tolist(), strict=True))
