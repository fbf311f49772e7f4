"""Computation, communication and copies of each device of a rank. Pure numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.overlap import BusyParts, Spans, busy_parts, common_ns
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    subtract_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.trace.rank_trace import RankTrace

Window = tuple[int, int]


@dataclass(frozen=True)
class DeviceOverlap:
    """One device of one rank.

    Attributes:
        compute_ns: Time with a kernel running that is no communication.
        communication_ns: Time with one that is.
        copy_ns: Time with a copy or fill running.
        kernel_busy_ns: Time with any kernel running.
        parts: The busy time, by what runs together.
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
