"""Kernels of one rank, reduced: exact durations by configuration, and the longest launches.

Durations are counted by name and launch configuration, so that what two shapes of one kernel differ
in is no tail. A rank keeps its own counts in few bytes: how long its launches take beyond the
medians over all ranks can be told only when all ranks are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from nsys_llm.core.concurrently import concurrently
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.tails.instances import MOST_CANDIDATES, Instances, merged_instances
from nsys_llm.facts.tails.launches import Key, KeyedKernels, coded_launches
from nsys_llm.facts.tails.outlier_context import around
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import Moments, OrderStatistics, ValueCounts
from nsys_llm.numeric.grouping import (
    distinct,
    distinct_codes,
    first_of_each,
    is_constant,
    summed,
)
from nsys_llm.numeric.intervals import IntArray, total_length_ns
from nsys_llm.numeric.longest import among_largest, candidate_rows, longest_starts
from nsys_llm.numeric.stacking import merged
from nsys_llm.numeric.tails import twice_medians
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.steps import DeviceSteps, StepKind

_Unsigned = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class RankTails:
    """One rank by device and key, in that order; arrays of shape (rows,).

    Attributes:
        keys: See `launches`; sorted.
        key: Position in `keys`.
        total_ns: Time inside the window.
        moments: Of whole launches that start in the window.
        order: Around the percentiles of those.
        counts: How often which duration; groups are rows.
        first_ns: Duration of the first of these launches; NULL_INT without one.
        longest_start_ns: Start of the longest of them, the first of equals, likewise.
        windows_ns: Length of the filter's windows, else from the first operation to the last, of
            each device, sorted by id.
        step: What its steps are; None where they are not known.
        steps: By device.
    """

    keys: tuple[Key, ...]
    device_id: IntArray
    key: IntArray
    total_ns: IntArray
    moments: Moments
    order: OrderStatistics
    counts: CompactHistogram
    first_ns: IntArray
    longest_start_ns: IntArray
    windows_ns: Mapping[int, int]
    step: StepKind | None
    steps: Mapping[int, DeviceSteps]


@dataclass(frozen=True)
class KernelTails:
    """Many ranks.

    Attributes:
        durations: How often which duration, by key.
        instances: The longest launches of each key.
    """

    ranks: Mapping[RankKey, RankTails] = field(default_factory=dict)
    durations: ByKey = field(default_factory=ByKey)
    instances: Instances = field(default_factory=Instances)

    @classmethod
    def merge(cls, parts: Sequence[KernelTails]) -> KernelTails:
        """Join facts of distinct ranks. Associative and commutative; the identity is empty."""
        parts = [part for part in parts if part.ranks]
        if len(parts) < 2:
            return parts[0] if parts else cls()
        durations, places = ByKey.placed([part.durations for part in parts])
        instances = merged_instances([part.instances for part in parts], places)
        return cls(merged([{}, *(part.ranks for part in parts)]), durations, instances)


def of(view: RankView) -> KernelTails:
    """Reduce one rank; its options top, base, mangled and phase_map matter."""
    launched = coded_launches(view.trace, view.steps, view.options)
    (launches, _), trace, rank = launched, view.trace, view.key
    inside = trace.starts_inside(launches.rows)
    durations = launches.duration_ns
    devices, used, row = _rows(launches)
    counts = ValueCounts.from_values(_chosen(row, inside), _chosen(durations, inside))
    place, keys_n = used % max(len(launches.keys), 1), len(launches.keys)
    # A filter leaves some keys without a launch: they stay behind.
    kept_keys, key = distinct_codes(place)
    keys = tuple(launches.keys[value] for value in kept_keys.tolist())
    groups = _Groups(devices[used // max(keys_n, 1)], key, row, counts)
    instances, tails = concurrently(
        len(launches.rows),
        lambda: _instances(view, launched, inside, counts.regrouped(place)),
        lambda: _tails(view, launches, inside, keys, groups),
    )
    numbers = {**instances.numbers, "key": np.searchsorted(kept_keys, instances.numbers["key"])}
    instances = replace(instances, numbers=numbers)
    return KernelTails({rank: tails}, ByKey(keys, counts=counts.regrouped(key)), instances)


def _rows(launches: KeyedKernels) -> tuple[IntArray, IntArray, IntArray]:
    """Return the devices; which device and key each row is of; and the row of each launch."""
    keys_n, device_id = len(launches.keys), launches.rows["device_id"]
    if is_constant(device_id):
        used = distinct(launches.key)
        if used.size == keys_n:  # nearly always: each row is a key
            return device_id[:1], used, launches.key
    devices, device = distinct_codes(device_id)
    return devices, *distinct_codes(device * keys_n + launches.key)


@dataclass(frozen=True)
class _Groups:
    """Launches of one key on one device: its `device_id` and `key`, and the group of each kernel.

    `counts` say how often a launch of a group took how long.
    """

    device_id: IntArray
    key: IntArray
    row: IntArray
    counts: ValueCounts


def _tails(
    view: RankView,
    launches: KeyedKernels,
    inside: npt.NDArray[np.bool_],
    keys: tuple[Key, ...],
    groups: _Groups,
) -> RankTails:
    trace = view.trace
    row, counts, groups_n = groups.row, groups.counts, groups.key.size
    starts, durations = launches.rows["start_ns"], launches.duration_ns
    moments = counts.moments(groups_n)
    return RankTails(
        keys=keys,
        device_id=groups.device_id,
        key=groups.key,
        total_ns=summed(row, trace.clipped_ns(launches.rows), groups_n),
        moments=moments,
        order=counts.order_statistics(groups_n),
        counts=CompactHistogram.of(counts),
        first_ns=first_of_each(row, durations, inside, groups_n, NULL_INT),
        longest_start_ns=longest_starts(row, starts, durations, inside, moments.maximum),
        windows_ns={
            device: total_length_ns(trace.device_windows(device)) for device in trace.device_ids
        },
        step=None if view.steps is None else view.steps.kind,
        steps=view.device_steps,
    )


def _chosen(values: IntArray, chosen: npt.NDArray[np.bool_]) -> IntArray:
    """Return the chosen values; without a copy where they are all."""
    return values if chosen.all() else values[chosen]


def _instances(
    view: RankView,
    launches: tuple[KeyedKernels, KeyedKernels],
    inside: npt.NDArray[np.bool_],
    counts: ValueCounts,
) -> Instances:
    """Return the longest launches of each key."""
    (kept, every), most = launches, view.options["top"]
    if most < 1:
        return Instances()
    key, starts, durations = (
        _chosen(values, inside) for values in (kept.key, kept.rows["start_ns"], kept.duration_ns)
    )
    rows = candidate_rows(key, durations, starts, counts, most)
    twice = twice_medians(counts.order_statistics(len(kept.keys)))
    rows = rows[among_largest(2 * durations[rows] - twice[key[rows]], MOST_CANDIDATES)]
    rows = rows if inside.all() else np.flatnonzero(inside)[rows]
    chosen = KeyedKernels(kept.rows.take(rows), kept.keys, kept.key[rows])
    numbers, texts = around(view.trace, every, chosen, view.steps)
    numbers |= {
        "owner": np.zeros(rows.size, dtype=np.int64),
        "key": chosen.key,
        "duration_ns": chosen.duration_ns,
        **{name: chosen.rows[name] for name in ("start_ns", "device_id", "stream_id")},
    }
    return Instances(most, (view.key,), numbers, texts).longest()


@dataclass(frozen=True)
class CompactHistogram:
    """The columns of `ValueCounts`, each in the narrowest unsigned integers that hold it."""

    group: _Unsigned
    value: _Unsigned
    count: _Unsigned

    @classmethod
    def of(cls, counts: ValueCounts) -> CompactHistogram:
        """Narrow; no value is negative."""
        return cls(*(narrowed(item) for item in (counts.group, counts.value, counts.count)))

    def widened(self) -> ValueCounts:
        """Return the counts again."""
        group, value, count = (
            item.astype(np.int64) for item in (self.group, self.value, self.count)
        )
        return ValueCounts(group, value, count)


def narrowed(values: npt.NDArray[np.int64]) -> _Unsigned:
    """Return whole numbers of 0 and more in the narrowest unsigned integers that hold them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
