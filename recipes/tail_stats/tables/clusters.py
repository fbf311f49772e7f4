"""Outliers that come together: several within a short time, on one rank or on many.

Chance is judged per rank by itself, and for all ranks together where their clocks are known; what
is found on one rank and is part of what is found over all of them is listed once. First launches
and warm-up are left out, since they come together by nature; so is communication, in which one slow
launch makes all other ranks wait at once; so are configurations of which a tenth of the launches
and more are outliers, or that have them in a mode of their own on several ranks, or on the only
one: those have two kinds of work rather than disturbances. Outliers of a kernel that is launched in
a short time only are close in time by nature: they have to be close among its launches too, and
single ones of a kernel in the time in which the device computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.tails.instances import Instances
from nsys_llm.numeric.grouping import joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import percent
from nsys_llm.trace.identity import Rank

from .medians import Medians, RankParts
from .outliers import offsets_ns, outlier_columns, owners, states_of

#: Share of a configuration's launches that are outliers from which they are its nature.
_USUAL_SHARE: Final = 0.1
#: Ranks that are listed by number.
_MOST_RANKS: Final = 16
#: What a launch is of, as the facts of ranks count launches; and what is known of an outlier.
_GROUP: Final = ["owner", "device_id", "key"]
_EVENT: Final = ("device_id", "key", "start_ns", "duration_ns", "config_launch")
#: Bursts that chance alone would give once in so many sets of events are reported.
LARGEST_CHANCE: Final = 0.01
#: Two events make no burst.
_LEAST_EVENTS: Final = 3
#: Windows are a quarter of the time at most, and half as long each time, down to this: what is
#: shorter than a kernel's launch takes is no burst but one disturbance. 1 us.
_LONGEST_PART: Final = 4
_SHORTEST_NS: Final = 1_000
#: Events beside a burst belong to it up to so many of its longest distance.
_AS_CLOSE: Final = 2


@dataclass(frozen=True)
class Burst:
    """One burst.

    Attributes:
        first: Position of its first event; the others follow.
        expected: How many chance would put into its time.
        chance: At most how many windows as full chance would give, of all that were looked at.
    """

    first: int
    events_n: int
    expected: float
    chance: float


#: Positions of outliers, and the burst that they are.
Cluster = tuple[IntArray, Burst]


def outlier_events(outliers: Instances, medians: Medians, parts: RankParts) -> pd.DataFrame:
    """Return one row an outlier: when, of what, and how many launches of that there are."""
    events = pd.DataFrame({name: outliers.numbers[name] for name in _EVENT})
    events["owner"] = owners(outliers, [rank for rank, _ in parts])
    events["state"] = states_of(outliers)
    events["excess_ns"] = events["duration_ns"] - medians.twice[events["key"]] // 2
    return events.merge(_launches(medians, parts), on=_GROUP, how="left")


def clusters(
    events: pd.DataFrame, medians: Medians, parts: RankParts, options: Mapping[str, Any]
) -> list[Cluster]:
    """Return bursts over all ranks, and those of a rank that are not part of one of these."""
    key = events["key"].to_numpy()
    # What is rare in its configuration: a disturbance, and not its nature.
    one_of_many = (events.groupby("key")["owner"].transform("nunique") == 1) & events["others"]
    usual = medians.beyond.outliers_n[key] >= _USUAL_SHARE * medians.moments.n[key]
    rare = ~usual & ~medians.communication[key] & (~medians.modes[key] | one_of_many)
    events = events[(events["state"] == "steady") & rare]
    owner = events["owner"]
    offset_ns = np.array(offsets_ns([rank for rank, _ in parts], options), dtype=np.int64)
    windows_ns = np.array([max(tails.windows_ns.values(), default=0) for _, tails in parts])
    busy_ns = np.array([int(tails.total_ns.sum()) for _, tails in parts])
    together: list[Cluster] = []
    known = (offset_ns != NULL_INT).all() and not options["disable_alignment"]
    if known and len(parts) > 1:
        aligned = events.assign(start_ns=events["start_ns"] + offset_ns[owner])
        found = _bursts(aligned, int(windows_ns.mean()), int(busy_ns.mean()))
        together = [item for item in found if owner[item[0]].nunique() > 1]
    listed = {row for rows, _ in together for row in rows.tolist()}
    alone = [
        item
        for rank in sorted(owner.unique())
        for item in _bursts(events[owner == rank], int(windows_ns[rank]), int(busy_ns[rank]))
        if not listed.issuperset(item[0].tolist())
    ]
    return [*together, *alone]


def burst_pcts(events: pd.DataFrame, found: Sequence[Cluster], rows_n: int) -> npt.NDArray[Any]:
    """Return how much of the excess of known outliers is in bursts, for each row of all ranks."""
    later = events[events["state"] != "first"]
    inside = later[later.index.isin(joined([rows for rows, _ in found]))]
    held_ns, every_ns = (
        summed(some["group"].to_numpy(), some["excess_ns"].to_numpy(), rows_n)
        for some in (inside, later)
    )
    return percent(held_ns, every_ns)


def _launches(medians: Medians, parts: RankParts) -> pd.DataFrame:
    """Return the launches of each configuration on each device, and whether other ranks have it."""
    columns = {
        "owner": [np.full(tails.key.size, place) for place, (_, tails) in enumerate(parts)],
        "device_id": [tails.device_id for _, tails in parts],
        "key": [medians.rows[rank.key] for rank, _ in parts],
        "launches_n": [tails.moments.n for _, tails in parts],
    }
    launches = pd.DataFrame({name: joined(values) for name, values in columns.items()})
    others = launches.groupby("key")["owner"].transform("nunique") > 1
    return launches.assign(group=np.arange(len(launches)), others=others)


def _bursts(events: pd.DataFrame, window_ns: int, busy_ns: int) -> list[Cluster]:
    events = events.sort_values("start_ns", kind="stable")
    start_ns, duration_ns = (events[name].to_numpy() for name in ("start_ns", "duration_ns"))
    bursts = []
    for burst in find_bursts(start_ns, start_ns + duration_ns, window_ns):
        chosen = slice(burst.first, burst.first + burst.events_n)
        by_time = burst.expected * window_ns / max(busy_ns, 1)
        log = _log_chance_among_launches(events, chosen, by_time)
        if log + math.log(windows_n(len(events), window_ns)) < math.log(LARGEST_CHANCE):
            bursts.append((events.index[chosen].to_numpy(), burst))
    return bursts


def _log_chance_among_launches(events: pd.DataFrame, chosen: slice, by_time: float) -> float:
    """Return the logarithm of the chance if any launch were as likely to be an outlier.

    From the first outlier of a configuration in the burst to its last there are some of its
    launches: so many of its other outliers are expected there. One that is alone there says nothing
    of that, and time stands for launches. Chernoff's bound of Poisson's distribution.

    Args:
        by_time: Outliers that the time in which the device computes lets expect in the burst.
    """
    groups = events.iloc[chosen].groupby("group")
    launch, inside_n = groups["config_launch"], groups.size()
    every_n = events.groupby("group").size()[inside_n.index]
    part = (launch.max() - launch.min()) / groups["launches_n"].first().clip(lower=1)
    several = inside_n > 1
    expected = float(((every_n - 1) * part.clip(upper=1))[several].sum())
    expected += by_time * (1 - int(every_n[several].sum()) / len(events))
    # The burst's own first event is given, once.
    more_n = int(inside_n.sum() - several.sum()) - int(not several.any())
    if more_n <= expected:
        return math.inf
    return more_n - expected + more_n * math.log(max(expected, 1e-300) / more_n)


def cluster_rows(
    found: Sequence[Cluster],
    outliers: Instances,
    medians: Medians,
    ranks: Sequence[Rank],
    options: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the table outlier_clusters, most excess first; the option top says how many."""
    inside = outliers.take(joined([place for place, _ in found]))
    frame = pd.DataFrame(outlier_columns(inside, medians, ranks, options))
    ends = np.cumsum([place.size for place, _ in found], dtype=np.int64).tolist()
    rows = [
        _row(frame.iloc[end - place.size : end], burst)
        for end, (place, burst) in zip(ends, found, strict=True)
    ]
    rows.sort(key=lambda row: (-row["excess_ns"], row["rank"], row["window_start_ns"]))
    return rows[: options["top"]]


def _row(outliers: pd.DataFrame, burst: Burst) -> dict[str, Any]:
    """Return a row, about the GPU that loses most; its window is in that rank's clock."""
    of_gpu = outliers.groupby(["rank", "device_id"])["excess_ns"].transform("sum")
    first = outliers.iloc[int(of_gpu.to_numpy().argmax())]
    rank, device_id = int(first["rank"]), int(first["device_id"])
    chosen = outliers[(outliers["rank"] == rank) & (outliers["device_id"] == device_id)]
    numbers = sorted(int(number) for number in outliers["rank"].unique())
    more = ", ..." if len(numbers) > _MOST_RANKS else ""
    by_name = outliers.groupby("name")["excess_ns"].sum()
    return {
        "rank": rank,
        "device_id": device_id,
        "ranks_n": len(numbers),
        "ranks": ", ".join(map(str, numbers[:_MOST_RANKS])) + more,
        "window_start_ns": int(chosen["start_ns"].min()),
        "window_end_ns": int(chosen["end_ns"].max()),
        "outliers_n": len(outliers),
        "expected": burst.expected,
        "kernels_n": len(by_name),
        "name": str(by_name.idxmax()),
        "excess_ns": int(chosen["excess_ns"].sum()),
        "likely_cause": str(outliers["likely_cause"].mode()[0]),
    }


def find_bursts(start_ns: IntArray, end_ns: IntArray, busy_ns: int) -> list[Burst]:
    """Return the windows with too many events to be spread by chance, in order of time.

    From each event on, windows of every length are looked at. Of n events spread evenly at random
    over a time T, a window of length w that begins with one holds each of the others with the
    probability w / T. The probability of as many as there are, times the number of windows looked
    at, bounds how many as full chance gives. Fullest windows first; none overlap.

    Args:
        start_ns: Shape (n,), ascending; an event is in a window where it starts in it.
        end_ns: Shape (n,), ends of the events.
        busy_ns: T, the time in which there can be events.
    """
    events_n = start_ns.size
    lengths = _window_lengths(busy_ns)
    if events_n < _LEAST_EVENTS or not lengths:
        return []
    counts = [
        np.searchsorted(start_ns, start_ns + length, side="right") - np.arange(events_n)
        for length in lengths
    ]
    looked_at = np.log(windows_n(events_n, busy_ns))
    logs = [
        looked_at + log_chance(count - 1, events_n - 1, length / busy_ns)
        for count, length in zip(counts, lengths, strict=True)
    ]
    best = np.argmin(np.stack(logs), axis=0)
    every = np.arange(events_n)
    log, count = np.stack(logs)[best, every], np.stack(counts)[best, every]
    likely = np.flatnonzero((log < np.log(LARGEST_CHANCE)) & (count >= _LEAST_EVENTS))
    chosen = _apart(likely[np.lexsort((likely, log[likely]))].tolist(), count)
    reach = np.maximum.accumulate(end_ns)
    bursts: list[Burst] = []
    for first in chosen:
        low, high = _grown(start_ns, first, first + int(count[first]), busy_ns / events_n)
        if bursts and low < bursts[-1].first + bursts[-1].events_n:
            continue  # they have grown together
        length_ns = int(reach[high - 1] - start_ns[low])
        expected = events_n * length_ns / busy_ns
        bursts.append(Burst(low, high - low, expected, float(np.exp(log[first]))))
    return bursts


def _grown(start_ns: IntArray, low: int, high: int, mean_ns: float) -> tuple[int, int]:
    """Return a burst with the events beside it that are about as close as its own.

    The fullest window of a burst need not hold all of it.
    """
    gaps = np.diff(start_ns)
    near_ns = min(_AS_CLOSE * int(gaps[low : high - 1].max()), mean_ns / _LONGEST_PART)
    while low > 0 and gaps[low - 1] <= near_ns:
        low -= 1
    while high < start_ns.size and gaps[high - 1] <= near_ns:
        high += 1
    return low, high


def log_chance(others: IntArray, events_n: int, part: float) -> npt.NDArray[np.float64]:
    """Return a bound of the logarithm of the chance that so many of some events are in a window.

    Chernoff's bound of the binomial distribution, by the divergence of the two shares.

    Args:
        others: Events in the window.
        part: Probability of each to be there, above 0.
    """
    if part >= 1 or events_n < 1:
        return np.zeros(others.shape)
    share = np.minimum(others / events_n, 1.0)
    inside = share * np.log(np.maximum(share, 1e-300) / part)
    left = 1.0 - share
    outside = left * np.log(np.maximum(left, 1e-300) / (1.0 - part))
    return np.where(share > part, -events_n * (inside + outside), 0.0)


def windows_n(events_n: int, busy_ns: int) -> int:
    """Return how many windows are looked at."""
    return events_n * len(_window_lengths(busy_ns))


def _window_lengths(busy_ns: int) -> list[int]:
    lengths, length = [], busy_ns // _LONGEST_PART
    while length >= _SHORTEST_NS:
        lengths.append(length)
        length //= 2
    return lengths


def _apart(ranked: list[int], count: IntArray) -> list[int]:
    """Return windows, by their first events, that share no event with one that came before."""
    taken = np.zeros(count.size, dtype=np.bool_)
    chosen = []
    for first in ranked:
        events = slice(first, first + int(count[first]))
        if not taken[events].any():
            taken[events] = True
            chosen.append(first)
    return sorted(chosen)
