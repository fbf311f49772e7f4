"""Where GPU time goes: every kernel's statistics, per rank and over all ranks, and its category.

Method. Each rank is reduced to integers: how often each kernel had each duration, and how much of
the device's busy time is its own. Over all ranks the counts add up, so that percentiles are those
of all launches together, not a median of medians. The time that k kernels share on a device is
split among them (see `nsys_llm.numeric.exclusive.exclusive_ns`), so exclusive times add up to the
union of all kernels, exactly. Categories come from ordered rules (see
`nsys_llm.taxonomy.categories`), applied to the demangled name whatever form is shown.

Limits. Kernel time is GPU time with node-level tracing's cost in it; kernels inside a CUDA graph
that was traced as a whole are not there (coverage says how many such launches there were).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.analyses.device.overlap import DeviceOverlap, map_overlap, map_spans
from nsys_llm.core.concurrently import concurrently
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.exclusive import exclusive_ns
from nsys_llm.numeric.grouping import distinct, distinct_codes, summed
from nsys_llm.numeric.intervals import IntArray, clip_to_windows, total_length_ns
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

from .findings.answer import answer, findings
from .findings.caveats import caveats
from .partials import DeviceTimes, HotspotsPartial, KernelRows, RankHotspots, SourceRows, merged
from .per_rank.details import map_details
from .per_rank.host import map_host
from .per_rank.memops import MemopCounts, RankMemops, map_memops
from .per_rank.overheads import map_overheads
from .tables import tabulation

__all__ = ["answer", "caveats", "empty", "findings", "map_rank", "merge", "tabulate"]


def empty() -> HotspotsPartial:
    """Return the identity of `merge`."""
    return HotspotsPartial()


def map_rank(trace: RankTrace, rank: RankKey, options: Mapping[str, Any]) -> HotspotsPartial:
    """Reduce one rank.

    Args:
        trace: Its rows and windows.
        rank: Its key.
        options: base and mangled choose the names shown; see `map_details` for the others.
    """
    kernels = trace.tables["kernels"]
    names = _named(kernels, trace.strings, options)
    census, (overlap, memops, memop_counts), details, _ = concurrently(
        len(kernels),
        lambda: _census(trace, names),
        lambda: _beside_kernels(trace, names, rank),
        lambda: map_details(
            trace, rank, options, (names.shown, names.name), (names.pairs, names.source)
        ),
        lambda: trace.gpu_busy,  # what follows asks for it from two threads
    )
    host, api_durations = map_host(trace, names.name, census.of_device, census.devices, options)
    hotspots = RankHotspots(
        names=names.shown,
        kernels=census.kernels,
        stats=census.stats,
        sources=census.sources,
        devices=_device_times(trace, overlap),
        overlap=overlap,
        memops=memops,
        details=details,
        host=host,
        overheads=map_overheads(trace),
    )
    all_names, _ = coded_names(
        distinct(trace.unfiltered["kernels"]["demangled_name_id"]), trace.strings
    )
    return HotspotsPartial(
        {rank: hotspots}, names.shown, census.by_name, all_names, memop_counts, api_durations
    )


def merge(parts: Sequence[HotspotsPartial]) -> HotspotsPartial:
    """Join partials of distinct ranks; associative and commutative."""
    return merged(parts)


def tabulate(
    partial: HotspotsPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables; see `tables.tabulation`."""
    return tabulation.tabulate(partial, ranks, options)


@dataclass(frozen=True)
class _Names:
    """Kernel names as codes: `name` into `shown`, `source` into the pairs (shown, full)."""

    shown: tuple[str, ...]
    name: IntArray
    pairs: tuple[tuple[str, str], ...]
    source: IntArray


@dataclass(frozen=True)
class _Census:
    """Statistics of the kernels of one rank; `of_device` groups by position in `devices`."""

    devices: IntArray
    kernels: KernelRows
    stats: KernelRows
    sources: SourceRows
    by_name: ValueCounts
    of_device: ValueCounts


def _census(trace: RankTrace, names: _Names) -> _Census:
    kernels = trace.tables["kernels"]
    inside = trace.starts_inside(kernels)
    clipped_ns = trace.clipped_ns(kernels)
    own_ns = _exclusive(kernels, names.source, trace.windows_ns)
    devices, device = distinct_codes(kernels["device_id"])
    whole_ns = (kernels["end_ns"] - kernels["start_ns"])[inside]
    by_device = device * len(names.shown) + names.name
    counts = ValueCounts.from_values(by_device[inside], whole_ns)
    sums = _Sums(by_device, clipped_ns, own_ns, len(devices) * len(names.shown))
    kernel_rows = _kernel_rows(counts, sums, devices, len(names.shown))
    by_name = counts.regrouped(np.tile(np.arange(len(names.shown)), len(devices)))
    stats = kernel_rows
    if len(devices) > 1:
        sums = _Sums(names.name, clipped_ns, own_ns, len(names.shown))
        stats = _kernel_rows(by_name, sums, np.array([NULL_INT]), len(names.shown))
    return _Census(
        devices=devices,
        kernels=kernel_rows,
        stats=stats,
        sources=_source_rows(names, inside, clipped_ns, own_ns),
        by_name=by_name,
        of_device=counts.regrouped(np.repeat(np.arange(len(devices)), len(names.shown))),
    )


def _beside_kernels(
    trace: RankTrace, names: _Names, rank: RankKey
) -> tuple[tuple[DeviceOverlap, ...], RankMemops, MemopCounts]:
    """Return what devices did at the same time, and copies and fills."""
    spans = map_spans(trace, _communication(names))
    memops, memop_counts = map_memops(trace, spans, rank.global_pid)
    return map_overlap(spans), memops, memop_counts


@dataclass(frozen=True)
class _Sums:
    group: IntArray
    clipped_ns: IntArray
    own_ns: IntArray
    groups_n: int

    def total_ns(self) -> IntArray:
        return summed(self.group, self.clipped_ns, self.groups_n)

    def exclusive_ns(self) -> IntArray:
        return summed(self.group, self.own_ns, self.groups_n)


def _named(kernels: Table, strings: Mapping[int, str], options: Mapping[str, Any]) -> _Names:
    full_ids = kernels["demangled_name_id"]
    full, full_code = coded_names(full_ids, strings)
    if options["base"]:
        shown, shown_code = coded_names(kernels["short_name_id"], strings)
    elif options["mangled"]:
        # Not every kernel has a mangled name: one compiled as C has only the plain one.
        ids = kernels["mangled_name_id"]
        shown, shown_code = coded_names(np.where(ids == NULL_INT, full_ids, ids), strings)
    else:
        pairs = tuple((name, name) for name in full)
        return _Names(full, full_code, pairs, full_code)
    used, source = distinct_codes(shown_code * len(full) + full_code)
    split = (divmod(code, len(full)) for code in used.tolist())
    return _Names(shown, shown_code, tuple((shown[i], full[k]) for i, k in split), source)


def _communication(names: _Names) -> npt.NDArray[np.bool_]:
    """Tell which kernels are communication; their demangled names decide."""
    told = [is_communication(full) for _, full in names.pairs]
    return np.array(told, dtype=bool)[names.source]


def _exclusive(kernels: Table, tie_break: IntArray, windows: IntArray | None) -> IntArray:
    """Return each kernel's share of its device's busy time inside the windows."""
    shares = np.zeros(len(kernels), dtype=np.int64)
    for device in distinct(kernels["device_id"]):
        mine = kernels["device_id"] == device
        own, ties = kernels.take(mine), tie_break[mine]
        if windows is None:
            shares[mine] = exclusive_ns(own["start_ns"], own["end_ns"], ties)
        else:
            owner, starts, ends = clip_to_windows(own["start_ns"], own["end_ns"], windows)
            pieces_ns = exclusive_ns(starts, ends, ties[owner], own["start_ns"][owner])
            shares[mine] = summed(owner, pieces_ns, len(own))
    return shares


def _kernel_rows(counts: ValueCounts, sums: _Sums, devices: IntArray, names_n: int) -> KernelRows:
    """Return the groups (device, name) that occur; group = position of device * names_n + name."""
    moments, order = counts.moments(sums.groups_n), counts.order_statistics(sums.groups_n)
    used = distinct(sums.group)
    return KernelRows(
        device_id=devices[used // names_n] if names_n else used,
        name=used % names_n if names_n else used,
        total_ns=sums.total_ns()[used],
        exclusive_ns=sums.exclusive_ns()[used],
        moments=moments.take(used),
        order=order.take(used),
    )


def _source_rows(
    names: _Names, inside: npt.NDArray[np.bool_], clipped_ns: IntArray, own_ns: IntArray
) -> SourceRows:
    pairs_n = len(names.pairs)
    return SourceRows(
        name=tuple(name for name, _ in names.pairs),
        full_name=tuple(full for _, full in names.pairs),
        launches_n=np.bincount(names.source[inside], minlength=pairs_n).astype(np.int64),
        total_ns=summed(names.source, clipped_ns, pairs_n),
        exclusive_ns=summed(names.source, own_ns, pairs_n),
    )


def _device_times(trace: RankTrace, overlap: Sequence[DeviceOverlap]) -> tuple[DeviceTimes, ...]:
    return tuple(_device_time(trace, device) for device in overlap)


def _device_time(trace: RankTrace, device: DeviceOverlap) -> DeviceTimes:
    ops = {name: trace.tables[name] for name in OP_TABLES if name in trace.tables}
    own = {name: table.take(table["device_id"] == device.device_id) for name, table in ops.items()}
    kernels, windows = own["kernels"], trace.windows_ns
    filled = [table for table in own.values() if len(table)]
    if windows is not None:
        span = windows
    elif filled:
        first_ns = min(int(table["start_ns"].min()) for table in filled)
        last_ns = max(int(table["end_ns"].max()) for table in filled)
        span = np.array([[first_ns, last_ns]], dtype=np.int64)
    else:
        span = np.empty((0, 2), dtype=np.int64)
    return DeviceTimes(
        device_id=device.device_id,
        window_start_ns=int(span[0, 0]) if len(span) else None,
        window_end_ns=int(span[-1, 1]) if len(span) else None,
        window_ns=total_length_ns(span),
        launches_n=int(trace.starts_inside(kernels).sum()),
        kernel_total_ns=int(trace.clipped_ns(kernels).sum()),
        kernel_busy_ns=device.kernel_busy_ns,
        busy_ns=device.busy_ns,
    )
