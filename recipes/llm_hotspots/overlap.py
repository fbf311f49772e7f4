"""Computation, communication and copies of a device: alone, together, exposed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.columns import Columns, percent
from nsys_llm.identity import Rank
from nsys_llm.intervals import (
    IntArray,
    clip_to_windows,
    subtract_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.overlap import BusyParts, Spans, busy_parts, common_ns
from nsys_llm.rank_trace import RankTrace

__all__ = ["DeviceOverlap", "longest_ns", "map_overlap", "map_spans", "overlap_columns"]

Window = tuple[int, int]


@dataclass(frozen=True)
class DeviceOverlap:
    """One device of one rank; see the table `overlap` of the manifest.

    Attributes:
        kernel_busy_ns: Time with any kernel running; not in that table.
        exposed_window_ns: The longest stretch of communication without computation; None if none.
    """

    device_id: int
    compute_ns: int
    communication_ns: int
    copy_ns: int
    kernel_busy_ns: int
    parts: BusyParts
    exposed_window_ns: Window | None

    @property
    def busy_ns(self) -> int:
        """Time with anything running: the sum of the disjoint parts."""
        return sum(astuple(self.parts))


def map_spans(trace: RankTrace, communication: npt.NDArray[np.bool_]) -> dict[int, Spans]:
    """Return when each device of a rank computes, communicates and copies, inside the windows.

    Args:
        trace: The rank.
        communication: Shape (kernels,): which of them are communication.
    """
    kernels = trace.tables["kernels"]
    mine = {device: kernels["device_id"] == device for device in trace.device_ids}
    return {
        device: Spans(
            compute=_union(trace, ("kernels",), device, own & ~communication),
            communication=_union(trace, ("kernels",), device, own & communication),
            copies=_union(trace, ("memcpys", "memsets"), device),
            graphs=_union(trace, ("graph_traces",), device),
        )
        for device, own in mine.items()
    }


def map_overlap(spans: Mapping[int, Spans]) -> tuple[DeviceOverlap, ...]:
    """Reduce the spans of each device (see `map_spans`) to their lengths."""
    return tuple(_device_overlap(device, own) for device, own in spans.items())


def overlap_columns(rows: Iterable[tuple[Rank, tuple[DeviceOverlap, ...]]]) -> Columns:
    """Return the table overlap; one row a device of a rank, in order."""
    found = [(rank, device) for rank, devices in rows for device in devices]
    parts = {
        name: _integers(getattr(device.parts, name) for _, device in found)
        for name in BusyParts.__dataclass_fields__
    }
    communication = _integers(device.communication_ns for _, device in found)
    exposed = parts["communication_only_ns"] + parts["communication_copy_ns"]
    busy = _integers(device.busy_ns for _, device in found)
    return {
        "rank": [rank.number for rank, _ in found],
        "file": [rank.file for rank, _ in found],
        "device_id": [device.device_id for _, device in found],
        "busy_ns": busy,
        "compute_ns": [device.compute_ns for _, device in found],
        "communication_ns": communication,
        "copy_ns": [device.copy_ns for _, device in found],
        **parts,
        "exposed_communication_ns": exposed,
        "exposed_communication_pct": percent(exposed, communication),
        "exposed_busy_pct": percent(exposed, busy),
        "exposed_start_ns": [_bound(device, 0) for _, device in found],
        "exposed_end_ns": [_bound(device, 1) for _, device in found],
    }


def longest_ns(intervals: IntArray) -> Window | None:
    """Return the longest of some intervals of shape (n, 2), the earliest of equals."""
    if not len(intervals):
        return None
    start_ns, end_ns = intervals[np.argmax(intervals[:, 1] - intervals[:, 0])].tolist()
    return start_ns, end_ns


def _device_overlap(device: int, spans: Spans) -> DeviceOverlap:
    exposed = spans.communication
    for other in (spans.compute, spans.graphs):
        exposed = subtract_intervals(exposed, other)
    parts = busy_parts(spans)
    compute_ns = total_length_ns(spans.compute)
    communication_ns = total_length_ns(spans.communication)
    both_ns = parts.compute_communication_ns + parts.compute_communication_copy_ns
    if len(spans.graphs):
        # The parts leave out what runs while a graph does.
        both_ns = common_ns(spans.communication, spans.compute)
    return DeviceOverlap(
        device_id=device,
        compute_ns=compute_ns,
        communication_ns=communication_ns,
        copy_ns=total_length_ns(spans.copies),
        kernel_busy_ns=compute_ns + communication_ns - both_ns,
        parts=parts,
        exposed_window_ns=longest_ns(exposed),
    )


def _union(
    trace: RankTrace,
    names: tuple[str, ...],
    device: int,
    chosen: npt.NDArray[np.bool_] | None = None,
) -> IntArray:
    """Return the time inside the windows in which one of the operations runs."""
    starts, ends = [], []
    for name in names:
        table = trace.tables[name]
        own = table["device_id"] == device if chosen is None else chosen
        every = bool(own.all())  # the common case, which needs no copies
        starts.append(table["start_ns"] if every else table["start_ns"][own])
        ends.append(table["end_ns"] if every else table["end_ns"][own])
    several = len(names) > 1
    start_ns = np.concatenate(starts) if several else starts[0]
    end_ns = np.concatenate(ends) if several else ends[0]
    if trace.windows_ns is not None:
        _, start_ns, end_ns = clip_to_windows(start_ns, end_ns, trace.windows_ns)
    return union_intervals(start_ns, end_ns)


def _integers(values: Iterable[int]) -> npt.NDArray[Any]:
    return np.array(list(values), dtype=np.int64)


def _bound(device: DeviceOverlap, side: int) -> int | None:
    return None if device.exposed_window_ns is None else device.exposed_window_ns[side]
