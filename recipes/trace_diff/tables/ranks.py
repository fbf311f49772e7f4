"""Tables by rank: which of the ranks that both sides have changed, and in what."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from nsys_llm.report.columns import Columns, percent
from nsys_llm.taxonomy.categories import Classification

from ..partials import RankSums, idle_total_ns
from .kernels import sum_columns
from .runs import Runs

_SUMMED = ("baseline_launches_n", "input_launches_n", "baseline_total_ns", "input_total_ns",
           "change_ns", "count_effect_ns", "per_call_effect_ns", "compute_change_ns",
           "communication_change_ns")  # fmt: skip


def rank_kernel_columns(runs: Runs, classes: Mapping[str, Classification]) -> Columns:
    """Return the table rank_kernels: ranks in order, of each the largest change first.

    Args:
        runs: All runs.
        classes: What each shown name says.
    """
    before, after = (
        {(number, name): sums for number, pair in runs.pairs.items()
         for name, sums in pair[side][1].kernels.items()}
        for side in (0, 1)
    )  # fmt: skip
    keys = sorted({*before, *after})
    frame = pd.DataFrame(
        {
            "rank": np.array([number for number, _ in keys], dtype=np.int64),
            "name": [name for _, name in keys],
            **sum_columns("launches", keys, before, after),
            "category": [classes[name].category for _, name in keys],
        }
    )
    frame = frame.assign(size=frame["change_ns"].abs())
    frame = frame.sort_values(["rank", "size", "name"], ascending=[True, False, True])
    return {name: frame[name] for name in frame.columns if name not in ("size", "change_pct")}


def rank_columns(runs: Runs, rank_kernels: Columns, communication: Mapping[str, bool]) -> Columns:
    """Return the table ranks.

    Args:
        runs: All runs.
        rank_kernels: Their kernels, see `rank_kernel_columns`.
        communication: Whether a kernel of a name moves data between GPUs.
    """
    numbers = list(runs.pairs)
    before, after = ([pair[side] for pair in runs.pairs.values()] for side in (0, 1))
    frame = pd.DataFrame(rank_kernels)
    talks = np.array([communication[name] for name in frame["name"]], dtype=bool)
    frame = frame.assign(
        compute_change_ns=frame["change_ns"].where(~talks, 0),
        communication_change_ns=frame["change_ns"].where(talks, 0),
    )
    sums = frame.groupby("rank")[[*_SUMMED]].sum().reindex(numbers, fill_value=0)
    # Of each rank the largest change stands first.
    largest = frame.drop_duplicates("rank").set_index("rank").reindex(numbers)
    idle = [
        pd.Series([idle_total_ns(sums.devices) for _, sums in side], dtype="Int64")
        for side in (before, after)
    ]
    exposed_ns = [
        np.array([_exposed_ns(sums) for _, sums in side], np.int64) for side in (before, after)
    ]
    return {
        "rank": numbers,
        "baseline_file": [rank.file for rank, _ in before],
        "input_file": [rank.file for rank, _ in after],
        **{name: sums[name].to_numpy(np.int64) for name in _SUMMED},
        "change_pct": percent(sums["change_ns"].to_numpy(), sums["baseline_total_ns"].to_numpy()),
        "baseline_idle_ns": idle[0].array,
        "input_idle_ns": idle[1].array,
        "idle_change_ns": (idle[1] - idle[0]).array,
        "exposed_change_ns": exposed_ns[1] - exposed_ns[0],
        "largest_kernel": [None if value != value else value for value in largest["name"]],
        "largest_change_ns": largest["change_ns"].fillna(0).to_numpy(np.int64),
    }


def _exposed_ns(sums: RankSums) -> int:
    return sum(device.exposed_ns for device in sums.devices)
