"""Tables by rank: which of the ranks that both sides have changed, and in what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.effects import split_change
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, nullable, percent
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.taxonomy.idle_causes import IDLE_CAUSES_N

from ..partials import DeviceSums, RankSums
from .runs import Runs


def rank_kernel_columns(runs: Runs, classes: Mapping[str, Classification]) -> Columns:
    """Return the table rank_kernels: ranks in order, of each the largest change first.

    Args:
        runs: All runs.
        classes: What each shown name says.
    """
    parts = [_one_rank(number, old, new) for number, (_, old), (_, new) in runs.pairs]
    frame = pd.concat(parts, ignore_index=True) if parts else _one_rank(0, None, None)
    effects = split_change(
        *(
            frame[name].to_numpy(np.int64)
            for name in (
                "baseline_launches_n",
                "baseline_total_ns",
                "input_launches_n",
                "input_total_ns",
            )
        )
    )
    frame = frame.assign(
        category=[classes[name].category for name in frame["name"]],
        change_ns=effects.change,
        count_effect_ns=effects.count,
        per_call_effect_ns=effects.per_call,
        size=np.abs(effects.change),
    ).sort_values(["rank", "size", "name"], ascending=[True, False, True], kind="stable")
    return {name: frame[name] for name in frame.columns if name != "size"}


def rank_columns(runs: Runs, rank_kernels: Columns, communication: Mapping[str, bool]) -> Columns:
    """Return the table ranks.

    Args:
        runs: All runs.
        rank_kernels: Their kernels, see `rank_kernel_columns`.
        communication: Whether a kernel of a name moves data between GPUs.
    """
    frame = pd.DataFrame(rank_kernels)
    numbers = [number for number, _, _ in runs.pairs]
    place = {number: index for index, number in enumerate(numbers)}
    code = np.array([place[number] for number in frame["rank"]], dtype=np.int64)
    talks = np.array([communication[name] for name in frame["name"]], dtype=bool)

    def total(name: str, chosen: Any = None) -> IntArray:
        values = frame[name].to_numpy(np.int64)
        values = values if chosen is None else np.where(chosen, values, 0)
        return summed(code, values, len(numbers))

    before_ns, change_ns = total("baseline_total_ns"), total("change_ns")
    # Of each rank the largest change stands first.
    largest = frame.drop_duplicates("rank").set_index("rank").reindex(numbers)
    idle0, idle1 = (
        _idle([old for _, (_, old), _ in runs.pairs]),
        _idle([new for _, _, (_, new) in runs.pairs]),
    )
    known = (idle0 != NULL_INT) & (idle1 != NULL_INT)
    return {
        "rank": numbers,
        "baseline_file": [rank.file for _, (rank, _), _ in runs.pairs],
        "input_file": [rank.file for _, _, (rank, _) in runs.pairs],
        "baseline_launches_n": total("baseline_launches_n"),
        "input_launches_n": total("input_launches_n"),
        "baseline_total_ns": before_ns,
        "input_total_ns": total("input_total_ns"),
        "change_ns": change_ns,
        "change_pct": percent(change_ns, before_ns),
        "count_effect_ns": total("count_effect_ns"),
        "per_call_effect_ns": total("per_call_effect_ns"),
        "compute_change_ns": total("change_ns", ~talks),
        "communication_change_ns": total("change_ns", talks),
        "baseline_idle_ns": nullable(idle0),
        "input_idle_ns": nullable(idle1),
        "idle_change_ns": nullable(np.where(known, idle1 - np.where(known, idle0, 0), NULL_INT)),
        "exposed_change_ns": _exposed(runs),
        "largest_kernel": [None if value != value else value for value in largest["name"]],
        "largest_change_ns": largest["change_ns"].fillna(0).to_numpy(np.int64),
    }


def _one_rank(number: int, before: RankSums | None, after: RankSums | None) -> pd.DataFrame:
    sides = [{} if sums is None else _by_name(sums) for sums in (before, after)]
    names = sorted({**sides[0], **sides[1]})
    rows = [[side.get(name, (0, 0)) for name in names] for side in sides]
    return pd.DataFrame(
        {
            "rank": np.full(len(names), number, dtype=np.int64),
            "name": names,
            "baseline_launches_n": np.array([n for n, _ in rows[0]], dtype=np.int64),
            "input_launches_n": np.array([n for n, _ in rows[1]], dtype=np.int64),
            "baseline_total_ns": np.array([ns for _, ns in rows[0]], dtype=np.int64),
            "input_total_ns": np.array([ns for _, ns in rows[1]], dtype=np.int64),
        }
    )


def _by_name(sums: RankSums) -> dict[str, tuple[int, int]]:
    kernels = sums.kernels
    pairs = zip(kernels.calls_n.tolist(), kernels.total_ns.tolist(), strict=True)
    return dict(zip(kernels.names, pairs, strict=True))


def _idle(ranks: Sequence[RankSums]) -> IntArray:
    """Return the idle time of each rank; NULL_INT where that of a device is not known."""
    return np.array([_idle_ns(sums.devices) for sums in ranks], dtype=np.int64)


def _idle_ns(devices: Sequence[DeviceSums]) -> int:
    known = [device.idle_ns for device in devices if device.idle_ns is not None]
    if len(known) < len(devices):
        return NULL_INT
    return sum(int(idle_ns[:IDLE_CAUSES_N].sum()) for idle_ns in known)


def _exposed(runs: Runs) -> list[int]:
    def exposed(sums: RankSums) -> int:
        return sum(device.exposed_ns for device in sums.devices)

    return [exposed(new) - exposed(old) for _, (_, old), (_, new) in runs.pairs]
