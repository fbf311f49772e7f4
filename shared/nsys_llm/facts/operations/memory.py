"""Device memory over time, its watermarks, and who allocates (`--cuda-memory-usage=true`).

Method. A free ends the allocation at its address, whatever size it names; what was allocated before
the recording began is not known, and its frees count apart. So `used` is what the process allocated
while it was recorded, and never negative. Levels are made from all events; the filters' windows say
which of them are shown. Memory that a library hands out of its own blocks (PyTorch's caching
allocator, an engine's key-value cache) is in use from the moment the library took the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.device.gpus import gpu_links, gpu_value
from nsys_llm.numeric.grouping import distinct_codes, summed
from nsys_llm.numeric.intervals import IntArray, bounds, span_quarters, starts_inside
from nsys_llm.numeric.watermarks import (
    NEVER,
    level_at,
    levels,
    matched_frees,
    notable_steps,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import ALLOCATION, FREE, memory_kinds
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.attribution import join_launches
from nsys_llm.trace.rank_trace import RankTrace, sane_memory_events

#: Equal parts of time of which `memory` keeps the highest and the last step.
MOST_BINS: Final = 100

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Allocator:
    """An API function that allocates; `api` is None where the call was not recorded."""

    device_id: int
    kind: str
    api: str | None
    allocations_n: int
    allocated_bytes: int
    peak_bytes: int
    end_bytes: int


@dataclass(frozen=True)
class MemorySeries:
    """One kind of memory of one device of one rank. See `memory_watermarks` of the manifest.

    Attributes:
        time_ns: Steps of the level, thinned out (see `notable_steps`).
        used_bytes: The level from each on.
    """

    device_id: int
    kind: str
    peak_bytes: int
    peak_ns: int
    total_bytes: int | None
    quarter_bytes: int
    half_bytes: int
    three_quarter_bytes: int
    end_bytes: int
    window_start_ns: int
    window_end_ns: int
    allocations_n: int
    frees_n: int
    unmatched_frees_n: int
    broken_n: int
    time_ns: IntArray
    used_bytes: IntArray
    allocators: tuple[Allocator, ...]


@dataclass(frozen=True)
class _Events:
    """The memory events of a rank; arrays of shape (n,).

    Attributes:
        inside: Which start in the windows.
        ended_by: Row of the event that ends an allocation, or NEVER.
        unmatched: Frees of memory that was allocated before.
        api: Position in `apis` of the function called.
    """

    rows: Table
    inside: _Mask
    ended_by: IntArray
    unmatched: _Mask
    api: IntArray
    apis: tuple[str | None, ...]

    def end_ns(self, chosen: IntArray) -> IntArray:
        """Return when each allocation ended; the largest int64 where it did not."""
        ends = self.rows["start_ns"][self.ended_by[chosen]]
        return np.where(self.ended_by[chosen] == NEVER, np.iinfo(np.int64).max, ends)


def map_memory(
    trace: RankTrace, global_pid: int, options: Mapping[str, Any]
) -> tuple[MemorySeries, ...]:
    """Return a series for each device and kind of memory; none where nothing was recorded."""
    recorded = trace.tables.get("memory_events")
    if recorded is None or not len(recorded):
        return ()
    if trace.windows_ns is not None and not len(trace.windows_ns):
        return ()
    sane = sane_memory_events(recorded)
    events = _events(trace, recorded.take(sane))
    devices, wanted = np.unique(events.rows["device_id"]).tolist(), options.get("device")
    links = gpu_links(trace.tables, global_pid, devices)
    kinds = memory_kinds(events.rows["memory_kind"])
    broken_n = int((~sane).sum())
    return tuple(
        _series(
            trace,
            events,
            selected,
            (device, kind),
            capacity if kind == "device" else None,
            broken_n,
        )
        for device in devices
        if wanted is None or device in wanted
        for capacity in [gpu_value(trace.tables, links.get(device), "total_bytes")]
        for kind in sorted(set(kinds.tolist()))
        for selected in [(events.rows["device_id"] == device) & (kinds == kind)]
        if selected.any()
    )


def _events(trace: RankTrace, rows: Table) -> _Events:
    ended_by, unmatched = matched_frees(
        rows["address"], rows["start_ns"], rows["operation"] == FREE
    )
    inside = np.ones(len(rows), dtype=bool)
    if trace.windows_ns is not None:
        inside = starts_inside(rows["start_ns"], trace.windows_ns)
    api, apis = _apis(trace, rows["correlation_id"])
    return _Events(rows, inside, ended_by, unmatched, api, apis)


def _apis(trace: RankTrace, correlation_id: IntArray) -> tuple[IntArray, tuple[str | None, ...]]:
    """Return for each event the position of its API function among the names, without version."""
    calls = trace.tables.get("api_calls")
    name_ids = np.full(correlation_id.shape, NULL_INT, dtype=np.int64)
    if calls is not None and len(calls):
        starts = calls.columns.get("start_ns")
        row = join_launches(correlation_id, calls["correlation_id"], starts)
        name_ids = np.where(row >= 0, calls["name_id"][row], NULL_INT)
    used, code = distinct_codes(name_ids)
    texts = [trace.strings.get(value) for value in used.tolist()]
    names = [None if text is None else strip_api_version(text) for text in texts]
    apis = tuple(sorted(set(names), key=lambda name: (name is not None, name or "")))
    return np.array([apis.index(name) for name in names], dtype=np.int64)[code], apis


def _series(
    trace: RankTrace,
    events: _Events,
    selected: _Mask,
    key: tuple[int, str],
    capacity: int | None,
    broken_n: int,
) -> MemorySeries:
    rows = events.rows
    allocations = np.flatnonzero(selected & (rows["operation"] == ALLOCATION))
    size, ends = rows["size_bytes"][allocations], events.end_ns(allocations)
    ended = events.ended_by[allocations] != NEVER
    times, level = levels(
        np.concatenate((rows["start_ns"][allocations], ends[ended])),
        np.concatenate((size, -size[ended])),
    )
    window = _window(trace, key[0], rows["start_ns"][selected])
    shown_ns, shown = _shown_levels(trace, times, level, window)
    peak = int(np.argmax(shown))
    begun = allocations[events.inside[allocations]]
    closing = events.ended_by[allocations[ended]]
    closing = closing[(rows["operation"][closing] == FREE) & events.inside[closing]]
    kept = notable_steps(shown_ns, shown, MOST_BINS)
    # A quarter is half-open: what happens at its end belongs to the next.
    quarter, half, three_quarter, end = level_at(span_quarters(*window) - 1, times, level).tolist()
    return MemorySeries(
        *key,
        peak_bytes=int(shown[peak]),
        peak_ns=int(shown_ns[peak]),
        total_bytes=capacity,
        quarter_bytes=quarter,
        half_bytes=half,
        three_quarter_bytes=three_quarter,
        end_bytes=end,
        window_start_ns=window[0],
        window_end_ns=window[1],
        allocations_n=begun.size,
        frees_n=closing.size,
        unmatched_frees_n=int((selected & events.unmatched & events.inside).sum()),
        broken_n=broken_n,
        time_ns=shown_ns[kept],
        used_bytes=shown[kept],
        allocators=_allocators(events, key, allocations, ends, int(shown_ns[peak]), window[1] - 1),
    )


def _window(trace: RankTrace, device: int, at_ns: IntArray) -> tuple[int, int]:
    """Return the span that quarters are taken of: the filter's, or that of the device's work."""
    start_ns, end_ns = bounds(trace.device_windows(device))
    if start_ns is None or end_ns is None:
        return int(at_ns.min()), int(at_ns.max())
    return start_ns, end_ns


def _shown_levels(
    trace: RankTrace, times: IntArray, level: IntArray, window: tuple[int, int]
) -> tuple[IntArray, IntArray]:
    """Return the steps inside the windows, and the level that each window begins with."""
    if trace.windows_ns is None:
        if times.size:
            return times, level
        return np.array([window[0]]), np.zeros(1, dtype=np.int64)
    inside = times[starts_inside(times, trace.windows_ns)]
    shown_ns = np.unique(np.concatenate((inside, trace.windows_ns[:, 0])))
    return shown_ns, level_at(shown_ns, times, level)


def _allocators(
    events: _Events,
    key: tuple[int, str],
    allocations: IntArray,
    ends: IntArray,
    peak_ns: int,
    last_ns: int,
) -> tuple[Allocator, ...]:
    starts, api = events.rows["start_ns"][allocations], events.api[allocations]
    size, begun = events.rows["size_bytes"][allocations], events.inside[allocations]

    def in_use(at_ns: int) -> IntArray:
        return np.where((starts <= at_ns) & (ends > at_ns), size, 0)

    names_n = len(events.apis)
    counts = {
        "allocations_n": begun.astype(np.int64),
        "allocated_bytes": np.where(begun, size, 0),
        "peak_bytes": in_use(peak_ns),
        "end_bytes": in_use(last_ns),
    }
    sums = {name: summed(api, values, names_n).tolist() for name, values in counts.items()}
    return tuple(
        Allocator(*key, events.apis[at], **{name: values[at] for name, values in sums.items()})
        for at in np.unique(api).tolist()
    )
