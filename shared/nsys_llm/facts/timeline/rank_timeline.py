"""The timeline of one rank: its lines and counters in the windows that there is room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.device.idle_split import situate, split_gaps
from nsys_llm.facts.host.states import ThreadStates, has_host_records
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.facts.timeline.recorded import (
    Recorded,
    memory_counters,
    reaching_in,
    recorded_counters,
    recorded_tracks,
)
from nsys_llm.numeric.intervals import (
    IntArray,
    clipped_lengths,
    intersect_intervals,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, FUSED, IDLE, LOAD
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.timeline import RankTimeline, Track

Window = tuple[int, int]

#: Track and slices of the time that is left out.
NOT_HERE: Final = "not in this file"


def step_track(steps: Steps | None, windows: IntArray) -> Iterator[Track]:
    """Return the line of steps that reach into the windows, whole; nothing without steps."""
    if steps is None:
        return
    rows = np.flatnonzero(clipped_lengths(steps.start_ns, steps.end_ns, windows) > 0)
    texts = [f"{name} [{row}]" for row, name in zip(rows.tolist(), steps.names[rows], strict=True)]
    where = "GPU" if steps.on_gpu else "host"
    times = np.column_stack((steps.start_ns[rows], steps.end_ns[rows]))
    yield Track.plain(f"steps ({steps.unit}, {where})", "step", times, texts, np.arange(rows.size))


def typical_and_worst(steps: Steps | None) -> list[Window]:
    """Return when the GPUs of a rank ran its step of median length and its longest one.

    Full steps that are no warm-up count, or all where there is none. A step is as long as its
    windows on the devices together, see `Steps.windows_ns`.
    """
    if steps is None or not steps.devices:
        return []
    windows = np.stack([steps.windows_ns(device) for device in steps.devices])
    start_ns, end_ns = windows[:, :, 0].min(axis=0), windows[:, :, 1].max(axis=0)
    length_ns = end_ns - start_ns
    counted = steps.full & ~steps.warmup & (length_ns > 0)
    rows = np.flatnonzero(counted if counted.any() else length_ns > 0)
    if not rows.size:
        return []
    ordered = rows[np.argsort(length_ns[rows], kind="stable")]
    chosen = dict.fromkeys((int(ordered[(rows.size - 1) // 2]), int(ordered[-1])))
    return [(int(start_ns[row]), int(end_ns[row])) for row in chosen]


def wall_tracks(view: RankView, windows: IntArray) -> Iterator[Track]:
    """Return a line for each device: the class of the wall split, cut to the windows.

    The slices of a class add up to its time in the windows, to the nanosecond.
    """
    for layer in view.wall_layers[1]:
        span, _ = device_windows(view.trace, layer.device_id)
        shown = intersect_intervals(span, windows)
        spans = {
            COMPUTE: union_intervals(*layer.only_compute.T),
            FUSED: subtract_intervals(
                union_intervals(*layer.compute.T), union_intervals(*layer.only_compute.T)
            ),
            COMMUNICATION: layer.communication,
            LOAD: layer.load,
            COPIES: subtract_intervals(layer.copies, layer.load),
            **layer.host,
        }
        spans = {name: intersect_intervals(times, shown) for name, times in spans.items()}
        busy = np.concatenate(list(spans.values()))
        spans[IDLE] = subtract_intervals(shown, union_intervals(busy[:, 0], busy[:, 1]))
        name = np.repeat(np.arange(len(spans)), [len(times) for times in spans.values()])
        times = np.concatenate(list(spans.values()))
        yield Track.plain(
            f"GPU {layer.device_id} wall-clock time", "wall", times, list(spans), name
        )


def idle_tracks(view: RankView, windows: IntArray) -> Iterator[Track]:
    """Return a line for each device: its gaps that reach into the windows, by largest cause."""
    for ops in view.device_ops:
        inside = clipped_lengths(ops.gaps.start_ns, ops.gaps.end_ns, windows) > 0
        gaps = ops.gaps.take(inside)
        split = split_gaps(gaps, situate(gaps, ops.launch_row, view.host), view.host)
        known = np.where(split.time_ns > 0, split.time_ns, NULL_INT)
        yield Track.plain(
            f"GPU {ops.device_id} idle causes",
            "gap",
            np.column_stack((gaps.start_ns, gaps.end_ns)),
            CAUSE_NAMES,
            split.time_ns.argmax(axis=0),
            {f"{cause}_ns": row for cause, row in zip(CAUSE_NAMES, known, strict=True)},
        )


def host_tracks(view: RankView, windows: IntArray) -> Iterator[Track]:
    """Return a line for each thread that a device waited for: what it did in such gaps.

    Gaps that reach into the windows; nothing where only CUDA calls are recorded of threads.
    """
    if not has_host_records(view.trace):
        return
    threads = ThreadStates(view.trace, view.host, view.records)
    texts = [" ".join(filter(None, threads.state(code))) for code in range(threads.states.size)]
    for ops in view.device_ops:
        gaps = ops.gaps.take(clipped_lengths(ops.gaps.start_ns, ops.gaps.end_ns, windows) > 0)
        for tid, pieces in threads.in_gaps(gaps, ops.launch_row):
            times = np.column_stack((pieces.start_ns, pieces.end_ns))
            label = f"GPU {ops.device_id} waits: thread {tid}"
            yield Track.plain(label, "host", times, texts, pieces.detail)


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
    """
    trace = view.trace
    rows = Recorded.of(trace, view.op_names)
    at_ns, weight = rows.starts(waits=bool(others), memory=bool(len(trace.tables["memory_events"])))
    last_ns = max(int(at_ns.max(initial=0)), trace.last_end_ns)
    first_ns = int(at_ns.min()) if at_ns.size else last_ns
    windows: list[Window] = [
        (first_ns if start_ns is None else start_ns, last_ns + 1 if end_ns is None else end_ns)
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
    left = subtract_intervals(np.array([(min(edges), max(edges))]), room.windows_ns)
    tracks = [
        Track.plain(NOT_HERE, "absent", left, (NOT_HERE,), np.zeros(len(left), np.int64)),
        *step_track(view.steps, room.windows_ns),
        *wall_tracks(view, room.windows_ns),
        *idle_tracks(view, room.windows_ns),
        *host_tracks(view, room.windows_ns),
        *(track.take(reaching_in(track, room.windows_ns)) for track in others),
        *recorded_tracks(rows, room.windows_ns),
    ]
    return RankTimeline(
        tuple(track for track in tracks if len(track)),
        (*recorded_counters(rows, room.windows_ns), *memory_counters(trace, room.windows_ns)),
        room.left_out_n,
    )


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
