"""What each device of a rank does at once: computation, communication, copies. Pure numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    intersect_intervals,
    merged_unions,
    subtract_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.trace.rank_trace import RankTrace

Window = tuple[int, int]


@dataclass(frozen=True)
class Spans:
    """When a device does what. Each of shape (n, 2), sorted and disjoint (see `union_intervals`).

    Attributes:
        compute: Kernels that are no communication.
        graphs: CUDA graphs traced as a whole: their content is unknown.
    """

    compute: IntArray
    communication: IntArray
    copies: IntArray
    graphs: IntArray


@dataclass(frozen=True)
class BusyParts:
    """The busy time of a device in disjoint parts: the fields add up to it exactly.

    `graph_ns` is the time with a whole graph running, whatever else runs; the others are the time
    without one. Of those, a name lists all that runs.
    """

    compute_only_ns: int
    communication_only_ns: int
    copy_only_ns: int
    compute_communication_ns: int
    compute_copy_ns: int
    communication_copy_ns: int
    compute_communication_copy_ns: int
    graph_ns: int


def busy_parts(spans: Spans) -> BusyParts:
    """Split the busy time of a device by what runs together."""
    compute, communication, copies = spans.compute, spans.communication, spans.copies
    if len(spans.graphs):
        compute, communication, copies = (
            subtract_intervals(item, spans.graphs) for item in (compute, communication, copies)
        )
    both = intersect_intervals(communication, copies)
    # By inclusion and exclusion: compute is cut by the few others, never the other way round.
    with_communication = common_ns(communication, compute)
    with_copies = common_ns(copies, compute)
    all_three = common_ns(both, compute)
    others = total_length_ns(both)
    return BusyParts(
        compute_only_ns=total_length_ns(compute) - with_communication - with_copies + all_three,
        communication_only_ns=total_length_ns(communication)
        - with_communication
        - others
        + all_three,
        copy_only_ns=total_length_ns(copies) - with_copies - others + all_three,
        compute_communication_ns=with_communication - all_three,
        compute_copy_ns=with_copies - all_three,
        communication_copy_ns=others - all_three,
        compute_communication_copy_ns=all_three,
        graph_ns=total_length_ns(spans.graphs),
    )


def common_ns(few: IntArray, many: IntArray) -> int:
    """Return the length of the time in both; each of shape (n, 2), sorted and disjoint."""
    _, starts, ends = clip_to_windows(few[:, 0], few[:, 1], many)
    return int((ends - starts).sum())


@dataclass(frozen=True)
class DeviceOverlap:
    """One device of one rank.

    Attributes:
        compute_ns: Time with a kernel running that is no communication.
        copy_ns: Time with a copy or fill running.
        kernel_busy_ns: Time with any kernel running.
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
    """Return when each device of a rank computes, communicates and copies, inside the windows."""
    kernels = trace.tables["kernels"]
    selected = {device: kernels["device_id"] == device for device in trace.device_ids}
    return {
        device: Spans(
            compute=_union(trace, "kernels", of_device & ~communication),
            communication=_union(trace, "kernels", of_device & communication),
            copies=merged_unions(
                [_on_device(trace, name, device) for name in ("memcpys", "memsets")]
            ),
            graphs=_on_device(trace, "graph_traces", device),
        )
        for device, of_device in selected.items()
    }


def map_overlap(spans: Mapping[int, Spans]) -> tuple[DeviceOverlap, ...]:
    """Reduce the spans of each device (see `map_spans`) to their lengths."""
    return tuple(_device_overlap(device, device_spans) for device, device_spans in spans.items())


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


def _on_device(trace: RankTrace, name: str, device: int) -> IntArray:
    return _union(trace, name, trace.tables[name]["device_id"] == device)


def _union(trace: RankTrace, name: str, chosen: npt.NDArray[np.bool_]) -> IntArray:
    """Return when any of the chosen rows of a table ran, inside the windows."""
    table = trace.tables[name]
    start_ns, end_ns = table["start_ns"], table["end_ns"]
    if not chosen.all():  # else, which is the common case, no copies are needed
        start_ns, end_ns = start_ns[chosen], end_ns[chosen]
    if trace.windows_ns is not None:
        _, start_ns, end_ns = clip_to_windows(start_ns, end_ns, trace.windows_ns)
    return union_intervals(start_ns, end_ns)
