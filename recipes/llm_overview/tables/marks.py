"""Where in the timeline each opportunity is: its window, or the stretches that it is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.facts.timeline.step_lanes import StepLane
from nsys_llm.job.job_clock import JobClock
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.records import Record
from nsys_llm.taxonomy.idle_causes import HOST_CAUSES
from nsys_llm.taxonomy.wall_classes import BUBBLE, EXPERTS, POINTWISE, TRANSFER, WAITING

from .views import GpuLane, View, blamed_rank

#: Marks of one opportunity in one view; ours: more are no marks.
_MOST_MARKS: Final = 40

#: States that an opportunity is about, by its cause; of kernels its detail is one.
_STATES: Final[Mapping[str, frozenset[str]]] = {
    "transfer": frozenset({TRANSFER}),
    "link": frozenset({TRANSFER}),
    "host": frozenset(HOST_CAUSES),
    "wait": frozenset(HOST_CAUSES),
    "queued": frozenset({"queued"}),
    "dependency": frozenset({"queued"}),
    "allocation": frozenset({"alloc"}),
    "module_load": frozenset({"module_load"}),
    "profiler": frozenset({"profiler_overhead"}),
    "waiting": frozenset({WAITING}),
    "schedule": frozenset({BUBBLE}),
    "experts": frozenset({EXPERTS}),
}
#: Of kernels by their detail, which else is the state.
_OF_KERNELS: Final = {"pointwise": POINTWISE, "conversions": frozenset({"memory"})}


@dataclass(frozen=True)
class Mark:
    """One stretch of a lane that a row of `opportunities` is about, in the clock of the profile."""

    opportunity: Record
    gpu: GpuLane
    start_ns: int
    end_ns: int
    pieces_n: int


Shown = Sequence[tuple[GpuLane, StepLane | None]]
#: Columns of the table `when_steps` that say where an opportunity costs time, and their values.
LOST_KEY: Final = ("finding", "rank", "device_id", "step")
Lost = tuple[Any, ...]


def marks_of(
    view: View,
    shown: Shown,
    opportunities: Sequence[Record],
    clocks: JobClock,
    lost: Collection[Lost] = (),
) -> list[Mark]:
    """Return the marks of a view, in the order of opportunities.

    One with a window is marked where that is, unless a rank is to blame: its window is an example.
    Of others only the first is marked: all that it is about, on the GPU that gains, or its lane.
    One that costs time in some steps of some GPUs is marked in these.
    """
    timed = {key[0] for key in lost}
    marks: list[Mark] = []
    for row in opportunities:
        if row["opportunity"] in timed:
            for gpu, _ in shown:
                key = (row["opportunity"], gpu.rank.number, gpu.device_id, view.step)
                begin_ns = clocks.own_ns(gpu.rank, view.start_ns)
                if key in lost:
                    marks.append(Mark(row, gpu, begin_ns, begin_ns + view.length_ns, 1))
            continue
        # On the lane of who gains, in whose clock its window is, or of whom the first blames.
        blamed = blamed_rank(row) if row["opportunity"] == 1 else None
        rank = row["rank"] if blamed is None else blamed
        there = [item for item in shown if item[0].rank.number == rank]
        exact = [item for item in there if item[0].device_id == row["device_id"]]
        for gpu, lane in (exact or there)[:1]:
            begin_ns = clocks.own_ns(gpu.rank, view.start_ns)
            end_ns = begin_ns + view.length_ns
            times = _times(row, lane, begin_ns, end_ns, is_blamed=blamed is not None)
            marks += [Mark(row, gpu, *stretch) for stretch in times]
    return marks


def _times(
    row: Record, lane: StepLane | None, begin_ns: int, end_ns: int, *, is_blamed: bool
) -> list[tuple[int, int, int]]:
    """Return the stretches of one opportunity: begin, end, and how many are joined in each."""
    if row["window_start_ns"] is not None and not is_blamed:
        low, high = max(row["window_start_ns"], begin_ns), min(row["window_end_ns"], end_ns)
        return [(low, high, 1)] if low < high else []
    if row["opportunity"] > 1:
        return []
    states = _STATES.get(row["cause"], frozenset())
    if row["cause"] == "kernels":
        detail = row["cause_detail"]
        states = _OF_KERNELS.get(detail, frozenset({detail}))
    if is_blamed or (lane is not None and not states):
        return [(begin_ns, end_ns, 1)]
    if lane is None:
        # Which of it the opportunity is about cannot be seen.
        return []
    segments = lane.segments
    wanted = np.array([state in states for state in lane.states], dtype=bool)
    rows = np.flatnonzero(wanted[segments.state]) if len(segments) else segments.state
    return _joined(segments.start_ns[rows], segments.end_ns[rows])


def _joined(start_ns: IntArray, end_ns: IntArray) -> list[tuple[int, int, int]]:
    """Return stretches with the smallest holes closed until they are few enough."""
    if not start_ns.size:
        return []
    holes = start_ns[1:] - end_ns[:-1]
    open_n = min(_MOST_MARKS - 1, holes.size)
    cut = np.sort(np.argsort(-holes, kind="stable")[:open_n])
    cut = cut[holes[cut] > 0]
    first = np.concatenate(([0], cut + 1))
    last = np.concatenate((cut, [start_ns.size - 1]))
    columns = (start_ns[first], end_ns[last], last - first + 1)
    return list(zip(*(column.tolist() for column in columns), strict=True))
