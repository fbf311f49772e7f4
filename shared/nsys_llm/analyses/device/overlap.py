"""What a device does at the same time: computation, communication, copies. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass

from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    intersect_intervals,
    subtract_intervals,
    total_length_ns,
)


@dataclass(frozen=True)
class Spans:
    """When a device does what. Each of shape (n, 2), sorted and disjoint (see `union_intervals`).

    Attributes:
        compute: Kernels that are no communication.
        communication: Kernels that are.
        copies: Copies and fills.
        graphs: CUDA graphs traced as a whole: nobody knows what runs in them.
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
            subtract_intervals(one, spans.graphs) for one in (compute, communication, copies)
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
