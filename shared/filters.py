"""The filter options as time windows and as choices of launches. Pure, one process at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.intervals import IntArray, intersect_intervals, starts_inside, union_intervals
from nsys_llm.ranges import Ranges, chosen_ranges, parse_choice, step_ranges

__all__ = ["RANGE_OPTIONS", "Launches", "Selection", "select"]

#: Options that need NVTX ranges.
RANGE_OPTIONS: Final = ("filter_nvtx", "filter_projected_nvtx", "steps", "skip_warmup")

_FOREVER_NS: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Launches:
    """Operations of one process and the API calls that launched them; all of shape (n,).

    Attributes:
        start_ns: Start of the operation on the GPU.
        end_ns: Its end.
        at_ns: Start of the launching call; meaningless where `known` is False.
        thread: globalTid of that call.
        known: Whether there is such a call.
    """

    start_ns: IntArray
    end_ns: IntArray
    at_ns: IntArray
    thread: IntArray
    known: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Selection:
    """What the filters leave of one process.

    Attributes:
        windows_ns: Shape (n, 2), sorted and disjoint; None if no option asks for a window.
        launched: Shape (ops,), bool: the operations whose launch is chosen; None for all.
        notes: What a filter could not find.
    """

    windows_ns: IntArray | None
    launched: npt.NDArray[np.bool_] | None
    notes: tuple[str, ...] = ()


def select(launches: Launches, ranges: Ranges | None, options: Mapping[str, Any]) -> Selection:
    """Apply the filter options to the operations of one process.

    Args:
        launches: All operations of the process.
        ranges: Its NVTX ranges; None if no option needs them.
        options: filter_time, filter_nvtx, filter_projected_nvtx, step, steps, skip_warmup.
    """
    windows = _time_window(options.get("filter_time"), launches)
    masks: list[npt.NDArray[np.bool_]] = []
    notes: list[str] = []
    if ranges is not None:
        if text := options.get("filter_projected_nvtx"):
            spans = _projected(launches, _found(ranges, text, notes))
            windows = spans if windows is None else intersect_intervals(windows, spans)
        if text := options.get("filter_nvtx"):
            masks.append(_launched_in(launches, _found(ranges, text, notes)))
        if options.get("steps") or options.get("skip_warmup"):
            masks += _step_masks(launches, ranges, options, notes)
    launched = np.logical_and.reduce(masks) if masks else None
    return Selection(windows, launched, tuple(notes))


def _time_window(given: Sequence[int | None] | None, launches: Launches) -> IntArray | None:
    """Return the one window given; an open side reaches to the first or last operation."""
    if given is None or launches.start_ns.size == 0:
        return None
    start_ns, end_ns = given
    low = int(launches.start_ns.min()) if start_ns is None else start_ns
    # An operation of no length at the very end has to start inside, too.
    last_ns = max(int(launches.end_ns.max()), int(launches.start_ns.max()) + 1)
    high = last_ns if end_ns is None else end_ns
    return np.array([[low, max(low, high)]], dtype=np.int64)


def _found(ranges: Ranges, text: str, notes: list[str]) -> Ranges:
    chosen = chosen_ranges(ranges, parse_choice(text))
    if not len(chosen.start_ns):
        notes.append(f"no NVTX range '{text}'; nothing of it is selected")
    return chosen


def _step_masks(
    launches: Launches, ranges: Ranges, options: Mapping[str, Any], notes: list[str]
) -> list[npt.NDArray[np.bool_]]:
    choice = parse_choice(options["step"]) if options.get("step") else None
    steps = step_ranges(ranges, choice)
    masks = []
    if not len(steps.start_ns):
        notes.append("no repeating NVTX range to count steps by; name one with --step")
    if wanted := options.get("steps"):
        masks.append(
            _launched_in(launches, steps.take(np.arange(len(steps.start_ns))[slice(*wanted)]))
        )
    if options.get("skip_warmup") and len(steps.start_ns):
        # Where the launch is not recorded, the start on the GPU has to stand for it.
        at_ns = np.where(launches.known, launches.at_ns, launches.start_ns)
        masks.append(at_ns >= steps.end_ns[0])
    return masks


def _launched_in(launches: Launches, ranges: Ranges) -> npt.NDArray[np.bool_]:
    """Tell which operations were launched inside any of the ranges."""
    shared = ranges.take(ranges.any_thread)
    inside = starts_inside(launches.at_ns, union_intervals(shared.start_ns, shared.end_ns))
    local = ranges.take(~ranges.any_thread)
    for thread in np.unique(local.thread):
        own = local.take(local.thread == thread)
        spans = union_intervals(own.start_ns, own.end_ns)
        inside |= (launches.thread == thread) & starts_inside(launches.at_ns, spans)
    return np.asarray(inside & launches.known)


def _projected(launches: Launches, ranges: Ranges) -> IntArray:
    """Return the union of the ranges' spans on the GPU, first start to last end of each."""
    spans = [_spans(launches, ranges.take(ranges.any_thread), launches.known)]
    local = ranges.take(~ranges.any_thread)
    for thread in np.unique(local.thread):
        own = local.take(local.thread == thread)
        spans.append(_spans(launches, own, launches.known & (launches.thread == thread)))
    merged = np.concatenate(spans)
    return union_intervals(merged[:, 0], merged[:, 1])


def _spans(launches: Launches, ranges: Ranges, mine: npt.NDArray[np.bool_]) -> IntArray:
    rows = np.flatnonzero(mine)
    rows = rows[np.argsort(launches.at_ns[rows], kind="stable")]
    at_ns = launches.at_ns[rows]
    first = np.searchsorted(at_ns, ranges.start_ns, side="left")
    last = np.searchsorted(at_ns, ranges.end_ns, side="left")
    used = last > first
    if not used.any():
        return np.empty((0, 2), dtype=np.int64)
    # Every other slice of reduceat is one range's launches, in order of time.
    bounds = np.column_stack((first[used], last[used])).ravel()
    starts = np.append(launches.start_ns[rows], _FOREVER_NS)
    ends = np.append(launches.end_ns[rows], 0)
    return np.column_stack(
        (np.minimum.reduceat(starts, bounds)[::2], np.maximum.reduceat(ends, bounds)[::2])
    )
