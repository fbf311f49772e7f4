"""The filter options as time windows and as choices of launches. Pure, one process at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_llm.manifest.range_choice import parse_choice
from nsys_llm.numeric.intervals import IntArray, intersect_intervals, starts_inside, union_intervals
from nsys_llm.trace.ranges import Ranges, chosen_ranges, most_on_a_thread
from nsys_llm.trace.rank_trace import RankTrace

#: Options that choose launches.
NVTX_OPTIONS: Final = ("filter_nvtx", "filter_projected_nvtx")
STEP_OPTIONS: Final = ("steps", "skip_warmup")
RANGE_OPTIONS: Final = (*NVTX_OPTIONS, *STEP_OPTIONS, "phase")

_FOREVER_NS: Final = int(np.iinfo(np.int64).max)

#: Options that choose operations by anything but their device.
FILTERS: Final = (*RANGE_OPTIONS, "filter_time")


def unfiltered(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those that choose operations: a timeline shows all that ran."""
    return {**options, **dict.fromkeys(FILTERS)}


@dataclass(frozen=True)
class OpLaunches:
    """Operations of one process and the API calls that launched them; all of shape (n,).

    Attributes:
        start_ns: Start of the operation on the GPU.
        at_ns: Start of the launching call; meaningless where `known` is False.
    """

    start_ns: IntArray
    end_ns: IntArray
    at_ns: IntArray
    thread: IntArray
    known: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FoundSteps:
    """The steps of one process, before any filter.

    Attributes:
        ranges: Where they lie on the host; they hold the launches of any thread.
        step: Shape (ops,), the step of each operation, -1 for none.
    """

    ranges: Ranges
    step: npt.NDArray[np.int32]
    first_end_ns: int


@dataclass(frozen=True)
class FoundPhase:
    """One phase of one process, before any filter.

    Attributes:
        launched: Shape (ops,), bool: the operations in ranges that the phase map puts there.
        windows_ns: Shape (n, 2), sorted and disjoint: the GPU's time from the first to the last
            operation launched in each such range.
        holds: Whether calls on the host start in it, given their starts and threads.
    """

    launched: npt.NDArray[np.bool_]
    windows_ns: IntArray
    holds: Callable[[IntArray, IntArray], npt.NDArray[np.bool_]]
    there: tuple[str, ...]


class Finders(NamedTuple):
    """How steps and a phase are found in a rank before any filter, with the options."""

    steps: Callable[[RankTrace, Mapping[str, Any]], FoundSteps | None]
    phase: Callable[[RankTrace, Mapping[str, Any]], FoundPhase]


@dataclass
class Selection:
    """What the filter options choose of the operations of one process.

    Attributes:
        windows: Shape (n, 2) each, sorted and disjoint; what is chosen lies in all of them.
        masks: What is chosen is so in each; shape (ops,), bool.
        ranges: The ranges of each filter; what is chosen lies in a range of every filter.
        not_before_ns: End of the first step, where the warm-up is skipped.
        there_n: For each option whose number is beyond the last instance, so that it chooses none:
            how many there are.
        others: For each option that names nothing: what there is instead.
    """

    launches: OpLaunches
    options: Mapping[str, Any]
    windows: list[IntArray] = field(default_factory=list)
    masks: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ranges: list[Ranges] = field(default_factory=list)
    not_before_ns: int | None = None
    there_n: dict[str, int] = field(default_factory=dict)
    phase: FoundPhase | None = None
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def windows_ns(self) -> IntArray | None:
        """What all windows share, shape (n, 2); None if no option asks for a window."""
        return reduce(intersect_intervals, self.windows) if self.windows else None

    @cached_property
    def launched(self) -> npt.NDArray[np.bool_] | None:
        """The operations whose launch is chosen, shape (ops,); None for all."""
        return np.logical_and.reduce(self.masks) if self.masks else None

    @property
    def chooses_calls(self) -> bool:
        """Whether a filter chooses launches, and with them calls on the host."""
        return bool(self.ranges) or self.not_before_ns is not None or self.phase is not None

    def chooses(self, start_ns: IntArray, thread: IntArray) -> npt.NDArray[np.bool_]:
        """Return which calls on the host start in the chosen ranges, as launches do.

        Args:
            start_ns: Shape (n,), as what is returned: when each call starts.
            thread: Shape (n,), globalTid of each.
        """
        chosen = np.ones(start_ns.shape, dtype=bool)
        for ranges in self.ranges:
            chosen &= _starts_in(start_ns, thread, ranges)
        if self.not_before_ns is not None:
            chosen &= start_ns >= self.not_before_ns
        if self.phase is not None:
            chosen &= self.phase.holds(start_ns, thread)
        return chosen

    def choose_ranges(self, ranges: Ranges) -> None:
        """Apply --filter-projected-nvtx and --filter-nvtx."""
        launches = self.launches
        if self.options.get("filter_projected_nvtx"):
            projected = self._matching(ranges, "filter_projected_nvtx")
            self.windows.append(_projected(launches, projected))
        if self.options.get("filter_nvtx"):
            chosen = self._matching(ranges, "filter_nvtx")
            self.ranges.append(chosen)
            self.masks.append(_starts_in(launches.at_ns, launches.thread, chosen) & launches.known)

    def _matching(self, ranges: Ranges, option: str) -> Ranges:
        """Return the ranges that an option names; say so where there are none."""
        choice = parse_choice(self.options[option])
        chosen = chosen_ranges(ranges, choice)
        if not len(chosen.start_ns):
            there_n = most_on_a_thread(chosen_ranges(ranges, replace(choice, index=None)))
            there = f"no NVTX range '{self.options[option]}'"
            if there_n:
                self.there_n[option] = there_n
                there = numbers_there(option, self.options, there_n)
            self.notes.append(f"{there}; nothing of it is selected")
        return chosen

    def choose_steps(self, steps: FoundSteps | None) -> None:
        """Apply --steps; say so where some or all of them are not there."""
        wanted = self.options["steps"]
        if steps is None:
            self.notes.append(self._no_steps())
            self.there_n["steps"] = 0
            self.masks.append(np.zeros(self.launches.start_ns.shape, dtype=bool))
            return
        steps_n = len(steps.ranges.start_ns)
        numbers = np.arange(steps_n)[slice(*wanted)]
        self.ranges.append(steps.ranges.take(numbers))
        self.masks.append(np.isin(steps.step, numbers))
        if not numbers.size:
            self.there_n["steps"] = steps_n
        if not numbers.size or (wanted[1] or 0) > steps_n:
            left = f"{numbers.size} of them {'is' if numbers.size == 1 else 'are'}"
            there = numbers_there("steps", self.options, steps_n)
            left = left if numbers.size else "none of them is"
            self.notes.append(f"{there}; {left} selected")

    def skip_warmup(self, steps: FoundSteps | None) -> None:
        """Apply --skip-warmup."""
        if steps is None:
            self.notes.append(self._no_steps())
            return
        launches = self.launches
        # Where the launch is not recorded, the start on the GPU has to stand for it.
        at_ns = np.where(launches.known, launches.at_ns, launches.start_ns)
        self.masks.append(at_ns >= steps.first_end_ns)
        self.not_before_ns = steps.first_end_ns

    def _no_steps(self) -> str:
        if self.options.get("step"):
            return f"no NVTX range '{self.options['step']}'; there are no steps to choose from"
        if self.options.get("step_kernel"):
            return f"no kernel '{self.options['step_kernel']}'; there are no steps to choose from"
        return "no step found to choose from; name one with --step or --step-kernel"

    def choose_phase(self, phase: FoundPhase) -> None:
        """Apply --phase."""
        self.masks.append(phase.launched)
        self.windows.append(phase.windows_ns)
        if not phase.launched.any():
            self.others["phase"] = phase.there
            self.notes.append(f"no phase '{self.options['phase']}'; nothing of it is selected")


def select(
    launches: OpLaunches,
    ranges: Ranges | None,
    options: Mapping[str, Any],
    steps: FoundSteps | None = None,
    phase: FoundPhase | None = None,
) -> Selection:
    """Apply the filter options to the operations of one process.

    Args:
        ranges: Its NVTX ranges; None if no option needs them.
        options: filter_time, filter_nvtx, filter_projected_nvtx, steps, skip_warmup; phase and
            what a step is are in the next two already.
        steps: Its steps; None without any, or if no option needs them.
        phase: The phase; None if no option names one.
    """
    chosen = Selection(launches, options, phase=phase)
    if (window := _time_window(options.get("filter_time"), launches)) is not None:
        chosen.windows.append(window)
    if ranges is not None:
        chosen.choose_ranges(ranges)
    if options.get("steps"):
        chosen.choose_steps(steps)
    if options.get("skip_warmup"):
        chosen.skip_warmup(steps)
    if phase is not None:
        chosen.choose_phase(phase)
    return chosen


def numbers_there(option: str, options: Mapping[str, Any], there_n: int) -> str:
    """Say how many instances there are for an option that chooses some of them by number.

    Args:
        option: filter_nvtx, filter_projected_nvtx or steps.
        there_n: How many there are; of ranges, on the thread with most of them.
    """
    if option == "steps":
        typed = ":".join("" if edge is None else str(edge) for edge in options[option])
        kind, where = "step", ""
    else:
        typed, kind, where = str(options[option]), "instance", " per thread"
    line = f"--{option.replace('_', '-')} '{typed}': there"
    if there_n > 1:
        return f"{line} are {there_n} {kind}s (0 to {there_n - 1}{where})"
    return f"{line} is 1 {kind} (0{where})" if there_n else f"{line} are no {kind}s"


def _time_window(given: Sequence[int | None] | None, launches: OpLaunches) -> IntArray | None:
    """Return the one window given; an open side reaches to the first or last operation."""
    if given is None or launches.start_ns.size == 0:
        return None
    start_ns, end_ns = given
    low = int(launches.start_ns.min()) if start_ns is None else start_ns
    # An operation of no length at the very end has to start inside, too.
    last_ns = max(int(launches.end_ns.max()), int(launches.start_ns.max()) + 1)
    high = last_ns if end_ns is None else end_ns
    return np.array([[low, max(low, high)]], dtype=np.int64)


def _by_thread(ranges: Ranges) -> Iterator[tuple[int | None, Ranges]]:
    """Yield the ranges of any thread, with None, and those of each thread."""
    yield None, ranges.take(ranges.any_thread)
    local = ranges.take(~ranges.any_thread)
    for thread in np.unique(local.thread).tolist():
        yield thread, local.take(local.thread == thread)


def _starts_in(at_ns: IntArray, thread: IntArray, ranges: Ranges) -> npt.NDArray[np.bool_]:
    """Return which calls start inside any of the ranges: of their thread, or of any."""
    inside = np.zeros(at_ns.shape, dtype=bool)
    for owner, some in _by_thread(ranges):
        here = starts_inside(at_ns, union_intervals(some.start_ns, some.end_ns))
        inside |= here if owner is None else here & (thread == owner)
    return inside


def _projected(launches: OpLaunches, ranges: Ranges) -> IntArray:
    """Return the union of the ranges' spans on the GPU, first start to last end of each."""
    spans = [
        _spans(launches, some, launches.known & (owner is None or launches.thread == owner))
        for owner, some in _by_thread(ranges)
    ]
    merged = np.concatenate(spans)
    return union_intervals(merged[:, 0], merged[:, 1])


def _spans(launches: OpLaunches, ranges: Ranges, selected: npt.NDArray[np.bool_]) -> IntArray:
    rows = np.flatnonzero(selected)
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
