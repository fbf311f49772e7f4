"""What our analyses say of each stretch of one rank: steps, wall-clock classes, idle causes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.device.idle_split import situate, split_gaps
from nsys_llm.facts.host.states import ThreadStates, has_host_records
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.numeric.intervals import (
    IntArray,
    clipped_lengths,
    intersect_intervals,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.wall_classes import (
    BEFORE_STEPS,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    FUSED,
    IDLE,
    LOAD,
    NO_WORK,
    NOT_RECORDED,
    OTHER_PROCESS,
    PROFILER,
)
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.timeline import Track

Window = tuple[int, int]


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
            PROFILER: layer.profiler,
            NOT_RECORDED: layer.not_recorded,
            OTHER_PROCESS: layer.other_process,
            NO_WORK: layer.no_work,
            BEFORE_STEPS: layer.start_up,
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
