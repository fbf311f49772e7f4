"""Where the wall-clock time of each full step of one rank went, by what the step did.

Steps and their windows are those of all recipes (`nsys_llm.facts.steps`): the windows of a
device add up, and the classes of a window are those of the table `wall`. Times are lengths: clocks
of two runs are never compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nsys_llm.facts.compared.host import ThreadRanges
from nsys_llm.facts.compared.operations import (
    MOVE_TABLES,
    CopyKind,
    Key,
    LaunchKeys,
    WorkSums,
    coded_moves,
)
from nsys_llm.facts.compared.step_works import Work, step_works
from nsys_llm.facts.device.idle_split import situate, split_gaps
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.facts.wall.layers import WallLayers
from nsys_llm.facts.wall.split import compute_by_kernel, wall_of_steps
from nsys_llm.numeric.grouping import coded, exact_sums, joined
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, intersect_intervals
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, IDLE_CAUSES_N
from nsys_llm.trace.device_ops import DeviceOps, device_windows
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: What a step is where there is none: all of the window.
WINDOW: Final = "window"
#: Columns of `DeviceStepWalls.sums_ns`.
SUMS: Final = ("communication", "copies", "profiler", "idle")

_CAUSES_N: Final = len(CAUSE_NAMES)
#: So many gaps at a time stay in the processor's cache.
_BLOCK: Final = 1 << 16


@dataclass(frozen=True)
class DeviceStepWalls:
    """The full steps of one device; arrays of shape (steps,) are int64, in order of time.

    Attributes:
        number: Of each, counted from 0 on its rank.
        work: Position in `StepWalls.works`.
        keys_n: Keys of context that its requests look at; -1 where its name does not tell.
        start_ns: Begin of its window, in the report's clock.
        wall_ns: Length of its window; of several windows, of all together.
        between_ns: Part of it before the step began on the host.
        sums_ns: Shape (steps, 4), the classes `SUMS`; what they leave of the walls is computation.
        idle_ns: Shape (steps, causes), time without an operation by cause, in the order of
            `CAUSE_NAMES`; None where it is not known.
        pause_ns: Its longest stretch in which the device was idle.
        pause_range: Position in `StepWalls.ranges` of the range that the launching thread was in
            in the middle of that stretch, up to its launch.
        compute: Computation in ns by work and position in `StepWalls.names` (behind the last:
            whole graphs).
        exposed: Shape (n, 2), communication inside the steps beside which nothing computes.
    """

    device_id: int
    number: IntArray
    work: IntArray
    keys_n: IntArray
    start_ns: IntArray
    end_ns: IntArray
    wall_ns: IntArray
    between_ns: IntArray
    sums_ns: IntArray
    idle_ns: IntArray | None
    pause_ns: IntArray
    pause_range: IntArray
    compute: WorkSums
    exposed: IntArray

    @property
    def profiler_ns(self) -> IntArray:
        """Time in which the profiler did its own work, and the device nothing."""
        return np.asarray(self.sums_ns[:, SUMS.index("profiler")])


@dataclass(frozen=True)
class StepWalls:
    """The full steps of one rank, or its whole window where it has none.

    Attributes:
        name: What a step is; None where there are none.
        unit: step, layer, graph or period; `WINDOW` where there are none.
        left_n: Steps that the filters leave, those that are cut and the warm-up among them.
        unparsed_n: Steps of an engine whose name is none of its formats.
        works: What steps do, by their names, sorted.
        names: Full names of kernels.
        ranges: Names of ranges, running numbers as #; "" for none inside of the step.
        devices: Those with a full step.
        keys: What kernels launch, see `LaunchKeys`.
        launches: Kernels launched in full steps, on all devices together: number and ns, by work
            and position in `keys`.
        copies: Those launched in full steps: number, ns and bytes, by work and kind.
    """

    name: str | None = None
    unit: str = WINDOW
    left_n: int = 0
    unparsed_n: int = 0
    works: tuple[Work, ...] = ()
    names: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    devices: tuple[DeviceStepWalls, ...] = ()
    keys: tuple[Key, ...] = ()
    launches: WorkSums = field(default_factory=WorkSums)
    copy_kinds: tuple[CopyKind, ...] = ()
    copies: WorkSums = field(default_factory=WorkSums)


@dataclass(frozen=True)
class _Chosen:
    """Which windows of a rank are looked at, and what each does."""

    steps: Steps | None
    row: IntArray
    works: tuple[Work, ...]
    work: IntArray
    keys_n: IntArray
    left_n: int = 0
    unparsed_n: int = 0


class RankWalls:
    """What step walls of one rank are made of, made once for its steps of several kinds."""

    def __init__(self, view: RankView, launches: LaunchKeys) -> None:
        """Line up the rank."""
        self.trace, self.launches, self.options = view.trace, launches, view.options
        self.names, self.layers = view.wall_layers
        self.host, self.devices = view.host, view.device_ops
        self.ranges = ThreadRanges(view.trace)
        self.moves = coded_moves(view.trace)
        self.idle: dict[int, IntArray] = {}

    def of(self, steps: Steps | None) -> StepWalls:
        """Return the full steps of those before any filter; None: of the windows as a whole.

        `idle` then has idle time by cause of all of each device.
        """
        chosen = _chosen(self.trace, steps, self.options)
        devices: list[DeviceStepWalls] = []
        for layers, device in zip(self.layers, self.devices, strict=True):
            spans = _windows(self.trace, chosen, layers.device_id)
            causes = self._idle(device, spans, whole=chosen.steps is None)
            if len(spans):
                pauses = self._pauses(device, spans)
                devices.append(_device_steps(layers, spans, chosen, causes[:-1], pauses))
        kernels = self.trace.tables["kernels"]
        took_ns = kernels["end_ns"] - kernels["start_ns"]
        launched, copied = (_works_of(self.trace, chosen, of) for of in (("kernels",), MOVE_TABLES))
        keys_n, (kinds, kind, moved) = len(self.launches.keys), self.moves
        return StepWalls(
            name=None if chosen.steps is None else chosen.steps.name,
            unit=WINDOW if chosen.steps is None else chosen.steps.unit,
            left_n=chosen.left_n,
            unparsed_n=chosen.unparsed_n,
            works=chosen.works,
            names=self.names,
            ranges=self.ranges.names,
            devices=tuple(devices),
            keys=self.launches.keys,
            launches=WorkSums.counted(launched, self.launches.key, keys_n, (took_ns,)),
            copy_kinds=kinds,
            copies=WorkSums.counted(copied, kind, len(kinds), moved),
        )

    def _idle(self, device: DeviceOps, spans: _Windows, *, whole: bool) -> IntArray:
        """Return idle time by window and cause; last, outside of all windows."""
        gaps, windows_n = device.gaps, len(spans)
        if whole and windows_n == 1 and device.device_id in self.idle:
            known = self.idle[device.device_id]
            return np.stack((known, np.zeros_like(known)))
        sums = np.zeros((windows_n + 1, _CAUSES_N), dtype=np.int64)
        place = np.where(spans.inside(gaps.start_ns) < 0, windows_n, spans.inside(gaps.start_ns))
        for first in range(0, len(gaps), _BLOCK):
            block = slice(first, first + _BLOCK)
            selected = gaps.take(block)
            split = split_gaps(selected, situate(selected, device.launch_row, self.host), self.host)
            for cause in np.flatnonzero(split.time_ns.any(axis=1)).tolist():
                sums[:, cause] += exact_sums(place[block], split.time_ns[cause], windows_n + 1)
        self.idle[device.device_id] = sums.sum(axis=0)
        return sums

    def _pauses(self, device: DeviceOps, spans: _Windows) -> tuple[IntArray, IntArray]:
        """Return the longest gap of each window, and the range that the host was in."""
        gaps, windows_n = device.gaps, len(spans)
        place, length_ns = spans.inside(gaps.start_ns), gaps.end_ns - gaps.start_ns
        longest = np.zeros(windows_n, dtype=np.int64)
        np.maximum.at(longest, place[place >= 0], length_ns[place >= 0])
        range_of = np.zeros(windows_n, dtype=np.int64)
        rows = np.flatnonzero(place >= 0)
        rows = rows[length_ns[rows] == longest[place[rows]]]
        # The first of equals stands last, and so is the one that stays.
        rows = rows[::-1]
        launch = np.where(gaps.after[rows] >= 0, device.launch_row[gaps.after[rows]], -1)
        range_of[place[rows]] = self.ranges.during(gaps.start_ns[rows], gaps.end_ns[rows], launch)
        return longest, range_of


def _chosen(trace: RankTrace, steps: Steps | None, options: Mapping[str, Any]) -> _Chosen:
    """Return the full steps that the filters leave, but for the warm-up."""
    if steps is not None:
        left = _left(trace, steps, options)
        rows = left[steps.full[left] & ~steps.warmup[left]]
        if rows.size:
            texts = [str(name) for name in steps.names[rows].tolist()]
            every, keys_n, unparsed_n = step_works(texts)
            works, work = coded(every)
            keys = np.array(keys_n, dtype=np.int64)
            return _Chosen(steps, rows, works, work, keys, left.size, unparsed_n)
    nothing = np.zeros(1, dtype=np.int64)
    return _Chosen(None, nothing, (Work(WINDOW),), nothing, nothing - 1)


def _left(trace: RankTrace, steps: Steps, options: Mapping[str, Any]) -> IntArray:
    """Return which of the steps the filters leave, as positions."""
    rows: IntArray = np.arange(len(steps))
    if options["steps"]:
        rows = rows[slice(*options["steps"])]
    if options["skip_warmup"]:
        rows = rows[steps.start_ns[rows] >= steps.end_ns[0]]
    if trace.windows_ns is not None:
        # The range is the host's and the window the GPU's: a step counts where most of it lies.
        start, end = steps.start_ns[rows], steps.end_ns[rows]
        rows = rows[2 * clipped_lengths(start, end, trace.windows_ns) > end - start]
    return rows


@dataclass(frozen=True)
class _Windows:
    """Windows of one device: shape (n, 2), and which of the chosen steps each is."""

    windows: IntArray
    place: IntArray

    def __len__(self) -> int:
        return len(self.windows)

    def inside(self, at_ns: IntArray) -> IntArray:
        """Return the window that each instant lies in, -1 for none."""
        place = np.searchsorted(self.windows[:, 0], at_ns, side="right") - 1
        inside = place >= 0
        inside[inside] = at_ns[inside] < self.windows[place[inside], 1]
        return np.where(inside, place, -1)


def _windows(trace: RankTrace, chosen: _Chosen, device_id: int) -> _Windows:
    """Return the windows on a device; steps of no length are left out."""
    if chosen.steps is None:
        windows, _ = device_windows(trace, device_id)
        return _Windows(windows, np.zeros(len(windows), dtype=np.int64))
    windows = chosen.steps.windows_ns(device_id)[chosen.row]
    place = np.flatnonzero(windows[:, 1] > windows[:, 0])
    return _Windows(windows[place], place)


def _device_steps(
    layers: WallLayers,
    spans: _Windows,
    chosen: _Chosen,
    idle_ns: IntArray,
    pauses: tuple[IntArray, IntArray],
) -> DeviceStepWalls:
    """Return the steps of a device; several windows of a filter by time are one."""
    split = wall_of_steps(layers, spans.windows)
    compute_ns = compute_by_kernel(layers, spans.windows)
    numbers, first, step = np.unique(spans.place, return_index=True, return_inverse=True)
    last, steps_n = np.append(first[1:], spans.place.size) - 1, numbers.size

    def by_step(values: IntArray) -> IntArray:
        return exact_sums(step, values, steps_n)

    columns = (split.communication_ns, split.copies_ns, split.profiler_ns, split.idle_ns)
    sums_ns = np.column_stack([by_step(column) for column in columns])
    causes = np.column_stack([by_step(column) for column in idle_ns.T])
    # More idle time by cause than there is: filters hide operations from the causes.
    known = int(causes[:, :IDLE_CAUSES_N].sum()) <= int(sums_ns[:, -1].sum())
    work = np.zeros((len(chosen.works), compute_ns.shape[1]), dtype=np.int64)
    np.add.at(work, chosen.work[spans.place], compute_ns)
    return DeviceStepWalls(
        device_id=layers.device_id,
        number=chosen.row[numbers],
        work=chosen.work[numbers],
        keys_n=chosen.keys_n[numbers],
        start_ns=spans.windows[first, 0],
        end_ns=spans.windows[last, 1],
        wall_ns=by_step(spans.windows[:, 1] - spans.windows[:, 0]),
        between_ns=by_step(_between(chosen, spans)),
        sums_ns=sums_ns,
        idle_ns=causes if known else None,
        pause_ns=pauses[0][first],
        pause_range=pauses[1][first],
        compute=WorkSums.of(work[:, :, None]),
        exposed=intersect_intervals(layers.communication, spans.windows),
    )


def _between(chosen: _Chosen, spans: _Windows) -> IntArray:
    """Return the part of each window before the range of its step began."""
    if chosen.steps is None:
        return np.zeros(len(spans), dtype=np.int64)
    begin_ns = chosen.steps.start_ns[chosen.row][spans.place]
    starts, ends = spans.windows.T
    return np.asarray(np.clip(begin_ns, starts, ends) - starts)


def _works_of(trace: RankTrace, chosen: _Chosen, wanted: tuple[str, ...]) -> IntArray:
    """Return the work of the full step that each operation of some tables belongs to; -1: none.

    Tables stand one after the other as in `OP_TABLES`.
    """
    parts, first = [], 0
    # `Steps.step` has the operations of these tables, in order, before any filter.
    for name in [name for name in OP_TABLES if name in trace.unfiltered]:
        ops, all_n = trace.tables[name], len(trace.unfiltered[name])
        if name in wanted and chosen.steps is None:
            parts.append(np.where(trace.starts_inside(ops), 0, -1))
        elif name in wanted and chosen.steps is not None:
            step = chosen.steps.step[first : first + all_n]
            work_of = np.full(len(chosen.steps) + 1, -1, dtype=np.int64)
            work_of[chosen.row] = chosen.work
            parts.append(work_of[step if len(ops) == all_n else step[trace.kept[name]]])
        first += all_n
    return joined(parts)
