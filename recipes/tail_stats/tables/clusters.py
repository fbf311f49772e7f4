"""Outliers that come together: several within a short time, on one rank or on many.

Chance is judged per rank by itself, and for all ranks together where their clocks are known; what
is found on one rank and is part of what is found over all of them is told once. First launches and
warm-up are left out, since they come together by nature; so is communication, in which one slow
launch on one rank makes all the others wait at once; so are configurations of which a tenth of the
launches and more are outliers, or that have them in a mode of their own on several ranks, or on the
only one: those have two kinds of work rather than disturbances. Outliers of a kernel that is
launched in a short time only are close in time by nature: they have to be close among its launches
too, and single ones of a kernel in the time in which the device computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import distinct_codes, joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import beyond_medians
from nsys_llm.report.columns import Columns
from nsys_llm.trace.identity import Rank

from ..per_rank.instances import Instances
from .bursts import LARGEST_CHANCE, Burst, find_bursts, windows_n
from .kernels import Medians, RankParts
from .outliers import outlier_columns, states_of

#: Share of a configuration's launches that are outliers from which they are its nature.
_USUAL_SHARE: Final = 0.1

_COLUMNS: Final = (
    "rank",
    "file",
    "device_id",
    "ranks_n",
    "ranks",
    "window_start_ns",
    "window_end_ns",
    "outliers_n",
    "expected",
    "chance",
    "kernels_n",
    "name",
    "excess_ns",
    "device_excess_ns",
    "likely_cause",
)


@dataclass(frozen=True)
class _Events:
    """Outliers; all of shape (outliers,).

    Attributes:
        group: Code of rank, device and configuration.
        launch: How many launches of that group began before.
        launches_n: Launches of that group.
    """

    start_ns: IntArray
    duration_ns: IntArray
    group: IntArray
    launch: IntArray
    launches_n: IntArray


@dataclass(frozen=True)
class _Time:
    """How long a rank is looked at, and how long its kernels run in that, summed; ns."""

    window_ns: int
    busy_ns: int


@dataclass(frozen=True)
class _Found:
    rows: IntArray
    burst: Burst


def cluster_columns(
    instances: Instances,
    durations: ValueCounts,
    medians: Medians,
    ranks: Sequence[Rank],
    offsets_ns: Sequence[int | None],
    parts: RankParts,
    tail_ranks: Columns,
    most: int,
) -> Columns:
    """Return the table outlier_clusters, most excess first.

    Args:
        instances: All outliers that were kept, see `per_rank.instances`.
        offsets_ns: How much later than the first the capture of each rank began, if known.
        tail_ranks: The table of that name; says how long kernels ran on each rank.
    """
    outliers_n = beyond_medians(durations, medians.twice, len(medians.keys)).outliers_n
    rare = (outliers_n < _USUAL_SHARE * medians.moments.n) & ~medians.communication
    rare &= ~medians.modes | _of_one_rank_alone(instances, medians, parts)
    states = states_of(instances)
    chosen = instances.take(rare[instances.numbers["key"]] & (states == "steady"))
    rows = outlier_columns(chosen, medians, ranks, offsets_ns)
    place = {rank.number: index for index, rank in enumerate(ranks)}
    owner = np.array([place[number] for number in rows["rank"]], dtype=np.int64)
    sums = (
        pd.DataFrame(tail_ranks)
        .groupby("rank")[["window_ns", "total_ns"]]
        .agg({"window_ns": "max", "total_ns": "sum"})
    )
    times = [
        _Time(*map(int, sums.loc[rank.number])) if rank.number in sums.index else _Time(0, 0)
        for rank in ranks
    ]
    events = _events(chosen, owner, medians, parts)
    clusters = _clusters(events, owner, times, offsets_ns)
    cells = [_row(cluster, rows, owner, ranks) for cluster in clusters]
    cells.sort(key=lambda cell: (-cell["excess_ns"], cell["rank"], cell["window_start_ns"]))
    return {name: [cell[name] for cell in cells[:most]] for name in _COLUMNS}


def _of_one_rank_alone(
    instances: Instances, medians: Medians, parts: RankParts
) -> npt.NDArray[np.bool_]:
    """Return which keys have outliers on a single one of the ranks that launch them."""
    keys_n = len(medians.keys)
    launching_n, slow_n = np.zeros((2, keys_n), dtype=np.int64)
    for _, tails in parts:
        launching_n[np.unique(medians.codes(tails.keys)[tails.key[tails.moments.n > 0]])] += 1
    pairs = np.column_stack([instances.numbers[name] for name in ("key", "owner")])
    np.add.at(slow_n, np.unique(pairs, axis=0)[:, 0], 1)
    return (slow_n == 1) & (launching_n > 1)


def _events(chosen: Instances, owner: IntArray, medians: Medians, parts: RankParts) -> _Events:
    """Return the outliers as events, with how many launches there are of what each one launches."""
    keys_n = max(len(medians.keys), 1)
    launched = [
        (place, tails.device_id, medians.codes(tails.keys)[tails.key], tails.moments.n)
        for place, (_, tails) in enumerate(parts)
    ]
    devices, _ = distinct_codes(joined([device_id for _, device_id, _, _ in launched]))
    code = joined(
        [
            (place * max(devices.size, 1) + np.searchsorted(devices, device_id)) * keys_n + key
            for place, device_id, key, _ in launched
        ]
    )
    launches_n = joined([n for *_, n in launched])
    order = np.argsort(code, kind="stable")
    device = np.searchsorted(devices, chosen.numbers["device_id"])
    launch_code = (owner * max(devices.size, 1) + device) * keys_n + chosen.numbers["key"]
    row = order[np.searchsorted(code[order], launch_code)]
    return _Events(
        chosen.numbers["start_ns"],
        chosen.numbers["duration_ns"],
        row,
        chosen.numbers["config_launch"],
        launches_n[row],
    )


def _clusters(
    events: _Events,
    owner: IntArray,
    times: Sequence[_Time],
    offsets_ns: Sequence[int | None],
) -> list[_Found]:
    together: list[_Found] = []
    known = all(item is not None for item in offsets_ns)
    if known and len(times) > 1 and len(owner):
        aligned = replace(
            events, start_ns=events.start_ns + np.array(offsets_ns, dtype=np.int64)[owner]
        )
        mean = _Time(
            sum(time.window_ns for time in times) // len(times),
            sum(time.busy_ns for time in times) // len(times),
        )
        every = np.arange(owner.size)
        together = [
            burst
            for burst in _bursts(every, aligned, mean)
            if np.unique(owner[burst.rows]).size > 1
        ]
    reported = {row for item in together for row in item.rows.tolist()}
    alone = [
        burst
        for rank in np.unique(owner).tolist()
        for burst in _bursts(np.flatnonzero(owner == rank), events, times[rank])
        if not reported.issuperset(burst.rows.tolist())
    ]
    return [*together, *alone]


def _bursts(rows: IntArray, events: _Events, time: _Time) -> list[_Found]:
    rows = rows[np.lexsort((rows, events.start_ns[rows]))]
    starts = events.start_ns[rows]
    bursts = []
    for burst in find_bursts(starts, starts + events.duration_ns[rows], time.window_ns):
        selected = rows[burst.first : burst.first + burst.events_n]
        chance = max(burst.chance, _chance_among_launches(selected, rows, events, burst, time))
        if chance < LARGEST_CHANCE:
            bursts.append(_Found(selected, replace(burst, chance=chance)))
    return bursts


def _chance_among_launches(
    selected: IntArray, rows: IntArray, events: _Events, burst: Burst, time: _Time
) -> float:
    """Return how many such bursts there would be if any launch were as likely to be an outlier.

    From the first outlier of a configuration in the burst to its last there are some of its
    launches: so many of its other outliers are expected there. One that is alone there says nothing
    of that, and time stands for launches. Chernoff's bound of Poisson's distribution.
    """
    group, place, own_n = np.unique(events.group[selected], return_inverse=True, return_counts=True)
    low = np.full(group.size, np.iinfo(np.int64).max)
    high = np.zeros(group.size, dtype=np.int64)
    np.minimum.at(low, place, events.launch[selected])
    np.maximum.at(high, place, events.launch[selected])
    several = own_n > 1
    every = np.sort(events.group[rows])
    all_n = np.searchsorted(every, group, side="right") - np.searchsorted(every, group)
    launches_n = np.zeros(group.size, dtype=np.int64)
    launches_n[place] = events.launches_n[selected]
    part = np.minimum((high - low) / np.maximum(launches_n, 1), 1.0)
    expected = float(((all_n - 1) * part)[several].sum())
    # The burst's own first event is given, once.
    more_n = int((own_n - 1)[several].sum() + (~several).sum()) - int(not several.any())
    elsewhere = (rows.size - int(all_n[several].sum())) / max(rows.size, 1)
    expected += burst.expected * elsewhere * time.window_ns / max(time.busy_ns, 1)
    if more_n <= expected:
        return float("inf")
    log = more_n - expected + more_n * math.log(max(expected, 1e-300) / more_n)
    return windows_n(rows.size, time.window_ns) * math.exp(log)


def _row(cluster: _Found, rows: Columns, owner: IntArray, ranks: Sequence[Rank]) -> dict[str, Any]:
    """Return a row; its window is that of the rank with the most outliers, in that rank's clock."""
    frame = pd.DataFrame({name: pd.Series(rows[name])[cluster.rows] for name in _USED})
    who, counts = np.unique(owner[cluster.rows], return_counts=True)
    rank = ranks[int(who[counts.argmax()])]
    rank_rows = frame[frame["rank"] == rank.number]
    by_device = rank_rows.groupby("device_id", sort=True)["excess_ns"].sum()
    excess_ns = frame.groupby("name", sort=True)["excess_ns"].sum()
    numbers = sorted(int(number) for number in frame["rank"].unique())
    return {
        "rank": rank.number,
        "file": rank.file,
        "device_id": int(by_device.idxmax()),
        "ranks_n": len(numbers),
        "ranks": ", ".join(map(str, numbers[:_MOST_RANKS]))
        + (", ..." if len(numbers) > _MOST_RANKS else ""),
        "window_start_ns": int(rank_rows["start_ns"].min()),
        "window_end_ns": int(rank_rows["end_ns"].max()),
        "outliers_n": cluster.burst.events_n,
        "expected": cluster.burst.expected,
        "chance": cluster.burst.chance,
        "kernels_n": len(excess_ns),
        "name": str(excess_ns.idxmax()),
        "excess_ns": int(frame["excess_ns"].sum()),
        "device_excess_ns": int(by_device.max()),
        "likely_cause": str(frame["likely_cause"].value_counts().sort_index().idxmax()),
    }


_USED: Final = (
    "rank",
    "device_id",
    "name",
    "start_ns",
    "end_ns",
    "excess_ns",
    "likely_cause",
)
#: Ranks that are listed by number.
_MOST_RANKS: Final = 16
