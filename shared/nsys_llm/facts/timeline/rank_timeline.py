"""The timeline of one rank: its lines and counters in the windows that there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.timeline.recorded import (
    Recorded,
    memory_counters,
    reaching_in,
    recorded_counters,
    recorded_tracks,
)
from nsys_llm.facts.timeline.states import host_tracks, idle_tracks, step_track, wall_tracks
from nsys_llm.numeric.intervals import IntArray, subtract_intervals, union_intervals
from nsys_llm.trace.timeline import RankTimeline, Track

Window = tuple[int, int]

#: Track and slices of the time that is left out.
NOT_HERE: Final = "not in this file"


@dataclass(frozen=True)
class Room:
    """The windows that fit.

    Attributes:
        windows_ns: Shape (n, 2), sorted and disjoint.
        left_out_n: Rows that start in the wanted windows and not in these.
    """

    windows_ns: IntArray
    left_out_n: int


def rank_timeline(
    view: RankView,
    wanted: Sequence[tuple[int | None, int | None]],
    most_events: int,
    others: Sequence[Track] = (),
    *,
    whole: bool = False,
) -> RankTimeline:
    """Return the timeline of a rank in some windows, or of all that was recorded if that fits.

    Between its first and last window, or all that was recorded, slices say what is not there.

    Args:
        wanted: Windows in the profile's clock; None is the begin or the end of what was recorded.
        most_events: How many events there may be; lines of findings and paths are not counted.
        others: Lines of what is known of the rank only beside others, of the whole run.
        whole: Whether it may be more than the windows.
    """
    trace = view.trace
    rows = Recorded.of(trace, view.op_names)
    at_ns, weight = rows.starts(waits=bool(others), memory=bool(len(trace.tables["memory_events"])))
    last_ns = max(int(at_ns.max(initial=0)), trace.last_end_ns)
    first_ns = int(at_ns.min()) if at_ns.size else last_ns
    windows: list[Window] = [
        (
            first_ns if start_ns is None else start_ns,
            last_ns + 1 if end_ns is None else end_ns,
        )
        for start_ns, end_ns in wanted
    ]
    windows = [window for window in windows if window[0] < window[1]]
    edges = [edge for window in windows for edge in window]
    if whole and windows:
        edges += [first_ns, last_ns + 1]
        windows = [(min(edges), max(edges))] if weight.sum() <= most_events else windows
    room = windows_with_room(windows, at_ns, weight, most_events)
    if not len(room.windows_ns):
        return RankTimeline((), (), room.left_out_n)
    tracks = [
        _absent(room.windows_ns, (min(edges), max(edges))),
        *step_track(view.steps, room.windows_ns),
        *wall_tracks(view, room.windows_ns),
        *idle_tracks(view, room.windows_ns),
        *host_tracks(view, room.windows_ns),
        *(track.take(reaching_in(track, room.windows_ns)) for track in others),
        *recorded_tracks(rows, room.windows_ns),
    ]
    return RankTimeline(
        tuple(track for track in tracks if len(track)),
        (
            *recorded_counters(rows, room.windows_ns),
            *memory_counters(trace, room.windows_ns),
        ),
        room.left_out_n,
    )


def _absent(windows_ns: IntArray, span: Window) -> Track:
    """Return the line of the time that is left out."""
    times = subtract_intervals(np.array([span]), windows_ns)
    return Track.plain(NOT_HERE, "absent", times, (NOT_HERE,), np.zeros(len(times), np.int64))


def windows_with_room(
    wanted: Sequence[Window], at_ns: IntArray, weight: IntArray, most: int
) -> Room:
    """Take windows, the shortest first, until their events are too many; the last one is cut short.

    Args:
        wanted: Start and end of each, in any order; they may overlap.
        at_ns: Shape (rows,), when each row starts.
        weight: Shape (rows,), how many events it becomes.
        most: How many events there may be; what is less than none is none.
    """
    most = max(most, 0)
    order = np.argsort(at_ns, kind="stable")
    at_ns = at_ns[order]
    before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(weight[order])))
    taken = np.empty((0, 2), dtype=np.int64)
    for window in sorted(wanted, key=lambda window: (window[1] - window[0], window)):
        for start_ns, end_ns in subtract_intervals(np.array([window]), taken).tolist():
            low, high = np.searchsorted(at_ns, (start_ns, end_ns), side="left")
            fits = int(np.searchsorted(before, before[low] + most, side="right")) - 1
            if fits < high:
                end_ns, most = int(at_ns[fits]), 0
            else:
                most -= int(before[high] - before[low])
            taken = union_intervals(*np.concatenate((taken, [[start_ns, end_ns]])).T)
    whole = union_intervals(*np.array(list(wanted), dtype=np.int64).reshape(-1, 2).T)
    return Room(taken, _rows_n(at_ns, whole) - _rows_n(at_ns, taken))


def _rows_n(at_ns: IntArray, windows: IntArray) -> int:
    """Return how many rows start in sorted disjoint windows; `at_ns` ascending."""
    low, high = (np.searchsorted(at_ns, windows[:, side], side="left") for side in (0, 1))
    return int((high - low).sum())
