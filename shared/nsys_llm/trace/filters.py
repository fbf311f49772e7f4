"""The filter options as time windows and as choices of launches. Pure, one process at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_llm.manifest.range_choice import parse_choice
from nsys_llm.numeric.intervals import IntArray, intersect_intervals, starts_inside, union_intervals
from nsys_llm.trace.ranges import Ranges, chosen_ranges, most_on_a_thread, step_ranges

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
        ranges: The ranges of each filter; what is chosen lies in a range of every filter.
        not_before_ns: End of the first step, where the warm-up is skipped.
        there_n: For each option whose number is beyond the last instance, so that it chooses none:
            how many there are.
    """

    windows_ns: IntArray | None
    launched: npt.NDArray[np.bool_] | None
    notes: tuple[str, ...] = ()
    ranges: tuple[Ranges, ...] = ()
    not_before_ns: int | None = None
    there_n: Mapping[str, int] = field(default_factory=dict)

    def chooses(self, start_ns: IntArray, thread: IntArray) -> npt.NDArray[np.bool_] | None:
        """Tell which calls on the host start in the chosen ranges, as launches do.

        Args:
            start_ns: Shape (n,), when each call starts.
            thread: Shape (n,), globalTid of each.

        Returns:
            Shape (n,); None if no filter chooses ranges, so that all calls are chosen.
        """
        if not self.ranges and self.not_before_ns is None:
            return None
        chosen = np.ones(start_ns.shape, dtype=bool)
        for ranges in self.ranges:
            chosen &= _starts_in(start_ns, thread, ranges)
        if self.not_before_ns is not None:
            chosen &= start_ns >= self.not_before_ns
        return chosen


def select(launches: Launches, ranges: Ranges | None, options: Mapping[str, Any]) -> Selection:
    """Apply the filter options to the operations of one process.

    Args:
        launches: All operations of the process.
        ranges: Its NVTX ranges; None if no option needs them.
        options: filter_time, filter_nvtx, filter_projected_nvtx, step, steps, skip_warmup.
    """
    windows = _time_window(options.get("filter_time"), launches)
    chosen: list[Ranges] = []
    warm_ns, said = None, _Said([], {})
    if ranges is not None:
        if options.get("filter_projected_nvtx"):
            spans = _projected(launches, _found(ranges, "filter_projected_nvtx", options, said))
            windows = spans if windows is None else intersect_intervals(windows, spans)
        if options.get("filter_nvtx"):
            chosen.append(_found(ranges, "filter_nvtx", options, said))
        if options.get("steps") or options.get("skip_warmup"):
            steps, warm_ns = _steps(ranges, options, said)
            chosen += steps
    launched = _launched(launches, chosen, warm_ns)
    return Selection(windows, launched, tuple(said.notes), tuple(chosen), warm_ns, said.there_n)


def numbers_there(option: str, options: Mapping[str, Any], there_n: int) -> str:
    """Say how many instances there are for an option that chooses some of them by number.

    Args:
        option: filter_nvtx, filter_projected_nvtx or steps.
        options: By name.
        there_n: How many there are; of ranges, on the thread with most of them.
    """
    if option == "steps":
        typed = ":".join("" if edge is None else str(edge) for edge in options[option])
        kind, where = "step", ""
    else:
        typed, kind, where = str(options[option]), "instance", " per thread"
    line = f"{_flag(option)} '{typed}': there"
    if there_n > 1:
        return f"{line} are {there_n} {kind}s (0 to {there_n - 1}{where})"
    return f"{line} is 1 {kind} (0{where})" if there_n else f"{line} are no {kind}s"


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


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


class _Said(NamedTuple):
    """What is to be said of the options: see `Selection`."""

    notes: list[str]
    there_n: dict[str, int]


def _found(ranges: Ranges, option: str, options: Mapping[str, Any], said: _Said) -> Ranges:
    choice = parse_choice(options[option])
    chosen = chosen_ranges(ranges, choice)
    if len(chosen.start_ns):
        return chosen
    there_n = most_on_a_thread(chosen_ranges(ranges, replace(choice, index=None)))
    if there_n:
        said.there_n[option] = there_n
        there = numbers_there(option, options, there_n)
        said.notes.append(f"{there}; nothing of it is selected")
    else:
        said.notes.append(f"no NVTX range '{options[option]}'; nothing of it is selected")
    return chosen


def _steps(
    ranges: Ranges, options: Mapping[str, Any], said: _Said
) -> tuple[list[Ranges], int | None]:
    """Return the steps asked for, and when the first step ended where the warm-up is skipped."""
    choice = parse_choice(options["step"]) if options.get("step") else None
    steps = step_ranges(ranges, choice)
    steps_n = len(steps.start_ns)
    chosen = []
    if not steps_n:
        said.notes.append(
            f"no NVTX range '{options['step']}'; there are no steps to choose from"
            if options.get("step")
            else "no repeating NVTX range to count steps by; name one with --step"
        )
    if wanted := options.get("steps"):
        chosen.append(steps.take(np.arange(steps_n)[slice(*wanted)]))
        _say_steps(wanted, steps_n, len(chosen[0].start_ns), options, said)
    skip = options.get("skip_warmup") and steps_n
    return chosen, int(steps.end_ns[0]) if skip else None


def _say_steps(
    wanted: tuple[int | None, int | None],
    steps_n: int,
    chosen_n: int,
    options: Mapping[str, Any],
    said: _Said,
) -> None:
    """Say so where some or all of the steps that were asked for are not there."""
    if not chosen_n:
        said.there_n["steps"] = steps_n
    if steps_n and (not chosen_n or (wanted[1] or 0) > steps_n):
        left = "none of them is" if not chosen_n else f"{chosen_n} of them {_is(chosen_n)}"
        said.notes.append(f"{numbers_there('steps', options, steps_n)}; {left} selected")


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _launched(
    launches: Launches, chosen: Sequence[Ranges], warm_ns: int | None
) -> npt.NDArray[np.bool_] | None:
    """Tell which operations were launched inside a range of every choice, and after the warm-up."""
    masks = [
        _starts_in(launches.at_ns, launches.thread, ranges) & launches.known for ranges in chosen
    ]
    if warm_ns is not None:
        # Where the launch is not recorded, the start on the GPU has to stand for it.
        masks.append(np.where(launches.known, launches.at_ns, launches.start_ns) >= warm_ns)
    return np.logical_and.reduce(masks) if masks else None


def _starts_in(at_ns: IntArray, thread: IntArray, ranges: Ranges) -> npt.NDArray[np.bool_]:
    """Tell which calls start inside any of the ranges: of their thread, or of any."""
    shared = ranges.take(ranges.any_thread)
    inside = starts_inside(at_ns, union_intervals(shared.start_ns, shared.end_ns))
    local = ranges.take(~ranges.any_thread)
    for one in np.unique(local.thread):
        own = local.take(local.thread == one)
        spans = union_intervals(own.start_ns, own.end_ns)
        inside |= (thread == one) & starts_inside(at_ns, spans)
    return inside


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
