"""Tables of kernels: tails over all ranks and by rank, and the sums of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.job.job_steps import steps_of_groups
from nsys_llm.numeric.distributions import Moments, OrderStatistics
from nsys_llm.numeric.grouping import joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import stacked
from nsys_llm.numeric.tails import (
    LEAST_VALUES_OF_A_TAIL,
    OUTLIER_RATIO,
    SYSTEMATIC_RATIO,
    Beyond,
    ratio,
    tail_score,
)
from nsys_llm.report.columns import (
    Columns,
    distribution_columns,
    nullable,
    percent,
    rank_columns,
)

from .medians import Medians, RankParts

#: Launches of a configuration from which its median says anything about its kernel's shapes; ours.
_LEAST_LAUNCHES: Final = 5
#: Ratio of medians between two configurations that makes the kernel a mix; ours.
SHAPE_RATIO: Final = 2.0

#: A flagged row with less than this share of all time is easily overlooked; peer survey 6B.
HIDDEN_PCT: Final = 1.0

_OF_RANK: Final = ("mean_ns", "p50_ns", "p99_ns", "max_ns")
_OF_CONFIG: Final = (*_OF_RANK, "min_ns", "q1_ns", "q3_ns")
_PLACE: Final = ("rank", "device_id")
_SUMS: Final = ("launches_n", "total_ns", "outliers_n", "outlier_excess_ns", "excess_ns")


def tail_numbers(medians: Medians, parts: RankParts) -> Columns:
    """Return the numbers of the table tails; column `key` has the key of each row, in order."""
    keys_n = len(medians.keys)
    codes = [medians.rows[rank.key] for rank, _ in parts]
    total_ns = summed(joined(codes), joined([tails.total_ns for _, tails in parts]), keys_n)
    whole_ns = int(total_ns.sum())
    rich = _tail_columns(
        _OF_CONFIG, medians.moments, medians.order, total_ns, whole_ns, medians.beyond
    )
    launched = [
        np.unique(code[tails.moments.n > 0]) for code, (_, tails) in zip(codes, parts, strict=True)
    ]
    return {
        "key": np.arange(keys_n),
        "ranks_n": np.bincount(joined(launched), minlength=keys_n).astype(np.int64),
        **rich,
        "second_mode": medians.modes,
        "shape_mix": _mixed(medians),
    }


def rank_tail_numbers(
    medians: Medians, parts: RankParts, beyond: Sequence[Beyond], burst_pct: npt.NDArray[Any]
) -> Columns:
    """Return the numbers of the table rank_tails; column `key` has the key of each row."""
    rows_n = [len(tails.key) for _, tails in parts]
    code = joined([medians.rows[rank.key] for rank, _ in parts])
    rank_ns = [int(tails.total_ns.sum()) for _, tails in parts]
    rich = _tail_columns(
        _OF_RANK,
        stacked(Moments, [tails.moments for _, tails in parts]),
        stacked(OrderStatistics, [tails.order for _, tails in parts]),
        joined([tails.total_ns for _, tails in parts]),
        np.repeat(np.array(rank_ns, dtype=np.int64), rows_n),
        stacked(Beyond, beyond),
    )
    everywhere = np.where(medians.moments.n[code] > 0, medians.twice[code] / 2, np.nan)
    return {
        "key": code,
        **rank_columns([(rank, n) for (rank, _), n in zip(parts, rows_n, strict=True)]),
        "device_id": joined([tails.device_id for _, tails in parts]),
        "communication": medians.communication[code],
        **rich,
        "all_p50_ns": everywhere,
        "p50_all_p50": ratio(np.asarray(rich["p50_ns"], dtype=np.float64), everywhere),
        "burst_pct": burst_pct,
        "first_ns": nullable(joined([tails.first_ns for _, tails in parts])),
        "longest_start_ns": nullable(joined([tails.longest_start_ns for _, tails in parts])),
    }


def _tail_columns(
    names: Sequence[str],
    moments: Moments,
    order: OrderStatistics,
    total_ns: IntArray,
    all_ns: IntArray | int,
    beyond: Beyond,
) -> Columns:
    """Return the statistics of some distributions, their tails and flags.

    Args:
        names: Those of `distribution_columns` that the table has.
        moments: Of whole values; `order` around their percentiles.
    """
    rich = distribution_columns(moments, order)
    median = np.asarray(rich["p50_ns"], dtype=np.float64)
    longest = np.where(moments.n > 0, moments.maximum, np.nan)
    p99_p50, max_p50 = ratio(np.asarray(rich["p99_ns"]), median), ratio(longest, median)
    total_pct = percent(total_ns, all_ns)
    outlier = np.nan_to_num(max_p50) > OUTLIER_RATIO
    systematic = np.nan_to_num(p99_p50) > SYSTEMATIC_RATIO
    systematic &= moments.n >= LEAST_VALUES_OF_A_TAIL
    return {
        "launches_n": rich["launches_n"],
        "total_ns": total_ns,
        "total_pct": total_pct,
        **{name: rich[name] for name in names},
        "p99_p50": p99_p50,
        "max_p50": max_p50,
        "tail_score": tail_score(longest, moments.n, max_p50),
        "excess_ns": beyond.twice // 2,
        "outliers_n": beyond.outliers_n,
        "outlier_excess_ns": beyond.outliers_twice // 2,
        "outlier": outlier,
        "systematic": systematic,
        "hidden": (outlier | systematic) & (np.nan_to_num(total_pct, nan=np.inf) < HIDDEN_PCT),
    }


def _step_columns(parts: RankParts) -> Columns:
    """Return what its group calls a step, by device of each rank; null where its rank does not."""
    group_of = {rank.key: rank.group for rank, _ in parts}
    steps = steps_of_groups({rank.key: tails.step for rank, tails in parts}, group_of)
    rows: list[tuple[object, ...]] = []
    for rank, tails in parts:
        for device_id, window_ns in tails.windows_ns.items():
            device, job = tails.steps.get(device_id), steps.get(rank.key)
            if job is None or device is None:
                rows.append((None,) * 4)
                continue
            times_ns, worst_ns = device.whole_ns, device.worst_ns
            # Where steps hold less than half of the time, they say little of it.
            known = worst_ns is not None and 2 * times_ns.sum() >= window_ns
            mean_ns = int(times_ns.sum()) / times_ns.size if known else None
            rows.append((job.unit, mean_ns, *worst_ns) if worst_ns and known else (None,) * 4)
    unit, step_ns, start_ns, end_ns = zip(*rows, strict=True) if rows else ((),) * 4
    return {
        "step_unit": list(unit),
        "step_ns": pd.array(list(step_ns), dtype="Float64"),
        "worst_step_start_ns": pd.array(list(start_ns), dtype="Int64"),
        "worst_step_end_ns": pd.array(list(end_ns), dtype="Int64"),
    }


def tail_rank_columns(numbers: Columns, parts: RankParts) -> Columns:
    """Return the table tail_ranks: the sums of each device of each rank, communication left out.

    A rank that is slow makes the others wait in that.
    """
    spans = [(rank, tails, device_id) for rank, tails in parts for device_id in tails.windows_ns]
    places = [(rank.number, device_id) for rank, _, device_id in spans]
    frame = pd.DataFrame({name: numbers[name] for name in (*_PLACE, "communication", *_SUMS)})
    sums = frame[~frame["communication"]].groupby([*_PLACE])[[*_SUMS]].sum()
    sums = sums.reindex(pd.MultiIndex.from_tuples(places, names=_PLACE), fill_value=0)
    whole = {name: sums[name].to_numpy(np.int64) for name in _SUMS}
    shares = ("launches_n", "outliers_n", "excess_ns")
    return {
        "rank": [rank.number for rank, _, _ in spans],
        "file": [rank.file for rank, _, _ in spans],
        "device_id": [device_id for _, _, device_id in spans],
        "steps_n": [tails.step and tails.step.steps_n for _, tails, _ in spans],
        **_step_columns(parts),
        **whole,
        **{
            f"{name.rpartition('_')[0]}_pct": percent(whole[name], int(whole[name].sum()))
            for name in shares
        },
    }


def _mixed(medians: Medians) -> npt.NDArray[np.bool_]:
    """Return which keys are of kernels whose configurations' medians lie `SHAPE_RATIO` apart."""
    kernel = pd.Series([key[0] for key in medians.keys], dtype=object)
    halves = pd.Series(medians.twice).where(medians.moments.n >= _LEAST_LAUNCHES).groupby(kernel)
    low, high = halves.transform("min"), halves.transform("max")
    return ((high >= SHAPE_RATIO * low) & (low > 0)).to_numpy(dtype=bool)
