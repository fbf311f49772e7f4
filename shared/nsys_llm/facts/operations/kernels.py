"""Kernels of one rank: names as codes, statistics of each, shares of the busy time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.device.dependents import Dependents
from nsys_llm.numeric.distributions import MEDIAN, Spread, ValueCounts
from nsys_llm.numeric.exclusive import exclusive_in_windows
from nsys_llm.numeric.gaps import start_order
from nsys_llm.numeric.grouping import distinct, distinct_codes, is_constant, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import shown_name_ids
from nsys_llm.trace.kernel_launches import NcuLaunches, launch_times, ncu_launches
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class KernelRows:
    """Kernels by device and shown name, in that order; all arrays of shape (rows,).

    Attributes:
        name: Code into `RankOperations.names`.
        total_ns: Time inside the window.
        exclusive_ns: Share of the union of kernels on the device.
        spread: Of whole launches that start in the window.
    """

    device_id: IntArray
    name: IntArray
    total_ns: IntArray
    exclusive_ns: IntArray
    spread: Spread


@dataclass(frozen=True)
class SourceRows:
    """Kernels by shown and demangled name; categories follow the latter.

    Attributes:
        full_name: Demangled names; the pairs are distinct and sorted.
        launches_n: Shape (rows,), launches that start in the window.
        total_ns: Likewise, time inside the window.
        exclusive_ns: Likewise, share of the union of kernels.
    """

    name: tuple[str, ...]
    full_name: tuple[str, ...]
    launches_n: IntArray
    total_ns: IntArray
    exclusive_ns: IntArray


@dataclass(frozen=True)
class KernelNames:
    """Kernel names as codes: `name` into `shown`, `source` into the pairs (shown, full)."""

    shown: tuple[str, ...]
    name: IntArray
    pairs: tuple[tuple[str, str], ...]
    source: IntArray


@dataclass(frozen=True)
class Census:
    """Statistics of the kernels of one rank; `of_device` groups by position in `devices`.

    `typical` is a launch of median duration of each row of `kernels`.
    """

    devices: IntArray
    kernels: KernelRows
    typical: NcuLaunches
    stats: KernelRows
    sources: SourceRows
    by_name: ValueCounts
    of_device: ValueCounts


def named_kernels(
    kernels: Table, strings: Mapping[int, str], options: Mapping[str, Any]
) -> KernelNames:
    """Return the names to show; base and mangled choose them."""
    full, full_code = coded_names(kernels["demangled_name_id"], strings)
    if not (options["base"] or options["mangled"]):
        pairs = tuple((name, name) for name in full)
        return KernelNames(full, full_code, pairs, full_code)
    shown, shown_code = coded_names(shown_name_ids(kernels, options), strings)
    used, source = distinct_codes(shown_code * len(full) + full_code)
    split = (divmod(code, len(full)) for code in used.tolist())
    return KernelNames(shown, shown_code, tuple((shown[i], full[k]) for i, k in split), source)


def map_kernels(trace: RankTrace, names: KernelNames, early: Dependents) -> Census:
    """Count the kernels of a rank, by name and device."""
    kernels = trace.tables["kernels"]
    inside = trace.starts_inside(kernels)
    clipped_ns = trace.clipped_ns(kernels)
    own_ns = _exclusive(kernels, _begins_ns(trace, early), names.source, trace.windows_ns)
    devices, device = distinct_codes(kernels["device_id"])
    by_device = names.name if len(devices) == 1 else device * len(names.shown) + names.name
    del device
    if trace.windows_ns is None:
        counts = ValueCounts.from_values(by_device, clipped_ns)
    else:
        whole_ns = kernels["end_ns"] - kernels["start_ns"]
        counts = ValueCounts.from_values(by_device[inside], whole_ns[inside])
    times_ns = clipped_ns, own_ns
    kernel_rows = _kernel_rows(counts, by_device, times_ns, devices, len(names.shown))
    by_name = counts.regrouped(np.tile(np.arange(len(names.shown)), len(devices)))
    stats = kernel_rows
    if len(devices) > 1:
        nowhere = np.array([NULL_INT])
        stats = _kernel_rows(by_name, names.name, times_ns, nowhere, len(names.shown))
    return Census(
        devices=devices,
        kernels=kernel_rows,
        typical=_typical(trace, kernel_rows, by_device, devices, len(names.shown)),
        stats=stats,
        sources=_source_rows(names, inside, clipped_ns, own_ns),
        by_name=by_name,
        of_device=counts.regrouped(np.repeat(np.arange(len(devices)), len(names.shown))),
    )


def _typical(
    trace: RankTrace, rows: KernelRows, group: IntArray, devices: IntArray, names_n: int
) -> NcuLaunches:
    """Return the first launch of median duration of each row; of an even number, the lower one.

    Args:
        rows: See `_kernel_rows`; a row without a launch in the window has its first launch.
    """
    kernels = trace.tables["kernels"]
    of_row = np.searchsorted(devices, rows.device_id) * names_n + rows.name
    median_ns = np.full(len(devices) * names_n, NULL_INT)
    median_ns[of_row] = rows.spread.order.low[:, MEDIAN]
    is_median = kernels["end_ns"] - kernels["start_ns"] == median_ns[group]
    is_median &= trace.starts_inside(kernels)
    # A profile's rows come in no particular order.
    ordered = start_order(
        kernels["start_ns"], lambda some: (launch_times(trace, kernels.take(some))[0],)
    )
    every = np.arange(len(kernels)) if ordered is None else ordered
    first = np.zeros(len(median_ns), dtype=np.int64)
    for chosen in (every, every[is_median[every]]):
        first[group[chosen][::-1]] = chosen[::-1]  # the last assignment, the earliest, stays
    return ncu_launches(trace, kernels.take(first[of_row]))


def communication_kernels(names: KernelNames) -> npt.NDArray[np.bool_]:
    """Return which kernels are communication; their demangled names decide."""
    reported = [is_communication(full) for _, full in names.pairs]
    return np.array(reported, dtype=bool)[names.source]


def _begins_ns(trace: RankTrace, early: Dependents) -> IntArray:
    """Return when kernels began or, of those that began early, the one ahead of them ended."""
    starts: IntArray = trace.tables["kernels"]["start_ns"]
    if not early.row.size:
        return starts
    early_ns = early.early_ns(len(trace.unfiltered["kernels"]))
    return starts + (early_ns if trace.complete else early_ns[trace.kept["kernels"]])


def _exclusive(
    kernels: Table, starts: IntArray, tie_break: IntArray, windows: IntArray | None
) -> IntArray:
    """Return each kernel's share of its device's busy time inside the windows."""
    ends = kernels["end_ns"]
    if is_constant(kernels["device_id"]):
        return exclusive_in_windows(starts, ends, tie_break, windows)
    shares = np.zeros(len(kernels), dtype=np.int64)
    for device in distinct(kernels["device_id"]):
        selected = kernels["device_id"] == device
        shares[selected] = exclusive_in_windows(
            starts[selected], ends[selected], tie_break[selected], windows
        )
    return shares


def _kernel_rows(
    counts: ValueCounts,
    group: IntArray,
    times_ns: tuple[IntArray, IntArray],
    devices: IntArray,
    names_n: int,
) -> KernelRows:
    """Return the groups (device, name) that occur.

    Args:
        group: Shape (kernels,), position of the device in `devices` * names_n + name.
        times_ns: Each kernel's time inside the windows, and its share of the busy time.
    """
    used, groups_n = distinct(group), len(devices) * names_n
    total_ns, exclusive_ns = (summed(group, values, groups_n)[used] for values in times_ns)
    return KernelRows(
        device_id=devices[used // max(names_n, 1)],
        name=used % max(names_n, 1),
        total_ns=total_ns,
        exclusive_ns=exclusive_ns,
        spread=counts.spread(groups_n).take(used),
    )


def _source_rows(
    names: KernelNames, inside: npt.NDArray[np.bool_], clipped_ns: IntArray, own_ns: IntArray
) -> SourceRows:
    pairs_n = len(names.pairs)
    return SourceRows(
        name=tuple(name for name, _ in names.pairs),
        full_name=tuple(full for _, full in names.pairs),
        launches_n=np.bincount(names.source[inside], minlength=pairs_n).astype(np.int64),
        total_ns=summed(names.source, clipped_ns, pairs_n),
        exclusive_ns=summed(names.source, own_ns, pairs_n),
    )
