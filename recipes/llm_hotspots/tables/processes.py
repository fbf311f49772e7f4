"""The table of processes: what each rank is, and its share of the job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from nsys_llm.report.columns import Columns, percent
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.identity import Rank

from ..partials import RankRows


def process_columns(
    ranks: RankRows, sources: pd.DataFrame, devices: Columns, memops: Columns
) -> Columns:
    """Return the table processes, of kernels by full name and two other tables; one row a rank."""
    numbers = [rank.number for rank, _ in ranks]
    names = ("rank", "window_ns", "busy_ns", "launches_n", "kernel_total_ns")
    by_rank = pd.DataFrame({name: devices[name] for name in names}).groupby("rank")
    moved = pd.DataFrame({name: memops[name] for name in ("rank", "ops_n", "total_ns")})
    moved = moved.groupby("rank").sum().reindex(numbers, fill_value=0)
    # --device may leave a rank none.
    sums = by_rank.sum().reindex(numbers, fill_value=0)
    reported = {name: is_communication(name) for name in sources["full_name"].unique()}
    selected = sources["full_name"].map(reported).to_numpy(dtype=bool)
    communication = sources[selected].groupby("rank")["total_ns"].sum()
    communication_ns = communication.reindex(numbers, fill_value=0).to_numpy(np.int64)
    kernel_ns = sums["kernel_total_ns"].to_numpy(np.int64)
    window_ns, busy_ns = (sums[name].to_numpy(np.int64) for name in ("window_ns", "busy_ns"))
    return {
        **_identity([rank for rank, _ in ranks]),
        "window_ns": window_ns,
        "busy_ns": busy_ns,
        "busy_pct": percent(busy_ns, window_ns),
        "launches_n": sums["launches_n"].to_numpy(np.int64),
        "kernel_total_ns": kernel_ns,
        "compute_total_ns": kernel_ns - communication_ns,
        "communication_total_ns": communication_ns,
        "memops_n": moved["ops_n"].to_numpy(np.int64),
        "memop_total_ns": moved["total_ns"].to_numpy(np.int64),
        "total_pct": percent(kernel_ns, int(kernel_ns.sum())),
    }


def _identity(ranks: Sequence[Rank]) -> Columns:
    return {
        "rank": [rank.number for rank in ranks],
        "file": [rank.file for rank in ranks],
        "host": [rank.host for rank in ranks],
        "pid": [rank.pid for rank in ranks],
        "process_name": [
            rank.facts.processes.get(rank.key.global_pid) if rank.facts else None for rank in ranks
        ],
    }
