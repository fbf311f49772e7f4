"""Where the wall-clock time of each full step of one rank went, by what the step did.

Steps and their windows are those of all recipes (`nsys_llm.analyses.steps`): the windows of a
device add up, and the classes of a window are those of the table `wall`. Times are lengths: clocks
of two runs are never compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.device.idle_split import situate, split_gaps
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.analyses.wall.layers import WallLayers
from nsys_llm.analyses.wall.split import WallOfSteps, wall_of_steps
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray, intersect_intervals
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.trace.device_ops import DeviceOps, device_windows
from nsys_llm.trace.rank_trace import RankTrace

from .launches import Key, Launches
from .step_numbers import step_tokens, works_of
from .steps import chosen_steps

#: What a step is where there is none: all of the window.
WINDOW: Final = "window"
#: Columns of `DeviceSteps.sums_ns`.
SUMS: Final = ("communication", "copies", "profiler", "idle")

_CAUSES_N: Final = len(CAUSE_NAMES)
#: So many gaps at a time stay in the processor's cache.
_BLOCK: Final = 1 << 16


def _none() -> IntArray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class SparseSums:
    """Sums by two codes, of which most are 0; all of shape (n,), int64, in order.

    Attributes:
        row: First code.
        column: Second code.
        total: The sum, not 0.
    """

    row: IntArray = field(default_factory=_none)
    column: IntArray = field(default_factory=_none)
    total: IntArray = field(default_factory=_none)

    @classmethod
    def of(cls, table: IntArray) -> SparseSums:
        """Return what is not 0 in an array of shape (rows, columns)."""
        row, column = np.nonzero(table)
        return cls(row.astype(np.int64), column.astype(np.int64), table[row, column])


@dataclass(frozen=True)
class DeviceSteps:
    """The full steps of one device; arrays of shape (steps,) are int64, in order of time.

    Attributes:
        device_id: CUDA device id.
        number: Of each, counted from 0 on its rank.
        work: Position in `StepWalls.works`.
        tokens_n: By its name; NULL_INT where that does not tell.
        start_ns: Begin of its window, in the report's clock.
        end_ns: End, likewise.
        wall_ns: Length of its window; of several windows, of all together.
        profiler_ns: Time in it in which the profiler did its own work, and the device nothing.
        sums_ns: Shape (works, 4), the classes `SUMS`; what they leave of the walls is computation.
        compute: Computation: work, position in `StepWalls.names` (behind the last: whole graphs),
            ns.
        idle_ns: Shape (works, causes), idle time by cause, the profiler's own last; None where it
            is not known.
        exposed: Shape (n, 2), communication inside the steps beside which nothing computes.
    """

    device_id: int
    number: IntArray
    work: IntArray
    tokens_n: IntArray
    start_ns: IntArray
    end_ns: IntArray
    wall_ns: IntArray
    profiler_ns: IntArray
    sums_ns: IntArray
    compute: SparseSums
    idle_ns: IntArray | None
    exposed: IntArray


@dataclass(frozen=True)
class StepWalls:
    """The full steps of one rank, or its whole window where it has none.

    Attributes:
        name: What a step is; None where there are none.
        unit: step, layer, graph or period; `WINDOW` where there are none.
        works: What steps do, by their names, sorted.
        names: Full names of kernels.
        devices: Those with a full step.
        keys: What kernels launch, see `Launches`.
        launches: Kernels launched in full steps: work, position in `keys`, and how many on all
            devices together.
        spent: Likewise, how long these kernels ran, ns.
    """

    name: str | None = None
    unit: str = WINDOW
    works: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    devices: tuple[DeviceSteps, ...] = ()
    keys: tuple[Key, ...] = ()
    launches: SparseSums = field(default_factory=SparseSums)
    spent: SparseSums = field(default_factory=SparseSums)


@dataclass(frozen=True)
class _Chosen:
    """Which windows of a rank are looked at, and what each does."""

    steps: Steps | None
    row: IntArray
    works: tuple[str, ...]
    work: IntArray
    tokens_n: IntArray


def step_walls(view: RankView, launches: Launches) -> tuple[StepWalls, dict[int, IntArray]]:
    """Return the full steps of a rank, and idle time by cause of all of each device.

    Args:
        view: The rank.
        launches: Its kernels.
    """
    trace, (names, layers) = view.trace, view.wall_layers
    chosen = _chosen(trace, view.steps, view.options)
    devices: list[DeviceSteps] = []
    idle: dict[int, IntArray] = {}
    for device_layers, device in zip(layers, view.device_ops, strict=True):
        spans = _windows(trace, chosen, device_layers.device_id)
        causes = _idle_by_work(device, view.host, spans, chosen)
        idle[device_layers.device_id] = causes.sum(axis=0)
        if len(spans):
            devices.append(_device_steps(device_layers, spans, chosen, causes[:-1]))
    launched, spent = _launches(trace, launches, chosen)
    return StepWalls(
        name=None if chosen.steps is None else chosen.steps.name,
        unit=WINDOW if chosen.steps is None else chosen.steps.unit,
        works=chosen.works,
        names=names,
        devices=tuple(devices),
        keys=launches.keys,
        launches=launched,
        spent=spent,
    ), idle


def _chosen(trace: RankTrace, steps: Steps | None, options: Mapping[str, Any]) -> _Chosen:
    """Return the full steps that the filters leave, but for the warm-up."""
    if steps is not None:
        rows = chosen_steps(trace, steps, options)
        rows = rows[steps.full[rows] & ~steps.warmup[rows]]
        if rows.size:
            texts = [str(name) for name in steps.names[rows].tolist()]
            labels = works_of(texts)
            works = tuple(sorted(set(labels)))
            place = {label: index for index, label in enumerate(works)}
            work = np.array([place[label] for label in labels], dtype=np.int64)
            tokens = [step_tokens(text) for text in texts]
            known = [NULL_INT if n is None else n for n in tokens]
            return _Chosen(steps, rows, works, work, np.array(known, dtype=np.int64))
    nothing = np.zeros(1, dtype=np.int64)
    return _Chosen(None, nothing, (WINDOW,), nothing, nothing + NULL_INT)


@dataclass(frozen=True)
class _Spans:
    """Windows of one device: shape (n, 2), and which of the chosen steps each is."""

    windows: IntArray
    place: IntArray

    def __len__(self) -> int:
        return len(self.windows)


def _windows(trace: RankTrace, chosen: _Chosen, device_id: int) -> _Spans:
    """Return the windows on a device; steps of no length are left out."""
    if chosen.steps is None:
        windows, _ = device_windows(trace, device_id)
        return _Spans(windows, np.zeros(len(windows), dtype=np.int64))
    windows = chosen.steps.windows_ns(device_id)[chosen.row]
    place = np.flatnonzero(windows[:, 1] > windows[:, 0])
    return _Spans(windows[place], place)


def _idle_by_work(
    device: DeviceOps, host: HostTimeline, spans: _Spans, chosen: _Chosen
) -> IntArray:
    """Return idle time by work and cause, shape (works + 1, causes); last, outside of all."""
    gaps, works_n = device.gaps, len(chosen.works)
    sums = np.zeros((works_n + 1, _CAUSES_N), dtype=np.int64)
    place = np.searchsorted(spans.windows[:, 0], gaps.start_ns, side="right") - 1
    inside = place >= 0
    inside[inside] = gaps.start_ns[inside] < spans.windows[place[inside], 1]
    work = np.full(len(gaps), works_n, dtype=np.int64)
    work[inside] = chosen.work[spans.place[place[inside]]]
    for first in range(0, len(gaps), _BLOCK):
        block = slice(first, first + _BLOCK)
        selected = gaps.take(block)
        split = split_gaps(selected, situate(selected, device.launch_row, host), host)
        for cause in np.flatnonzero(split.time_ns.any(axis=1)).tolist():
            sums[:, cause] += exact_sums(work[block], split.time_ns[cause], works_n + 1)
    return sums


def _device_steps(
    layers: WallLayers, spans: _Spans, chosen: _Chosen, idle_ns: IntArray
) -> DeviceSteps:
    split = wall_of_steps(layers, spans.windows)
    work, works_n = chosen.work[spans.place], len(chosen.works)
    columns = (split.communication_ns, split.copies_ns, split.profiler_ns, split.idle_ns)
    sums_ns = np.column_stack([exact_sums(work, column, works_n) for column in columns])
    wall_ns, profiler_ns = spans.windows[:, 1] - spans.windows[:, 0], split.profiler_ns
    numbers, first = np.unique(spans.place, return_index=True)
    last = np.append(first[1:], spans.place.size) - 1
    count_n = len(chosen.row)
    # More idle time by cause than there is: filters hide operations from the causes.
    known = bool((idle_ns[:, :-1].sum(axis=1) <= sums_ns[:, -1]).all())
    return DeviceSteps(
        device_id=layers.device_id,
        number=chosen.row[numbers],
        work=chosen.work[numbers],
        tokens_n=chosen.tokens_n[numbers],
        start_ns=spans.windows[first, 0],
        end_ns=spans.windows[last, 1],
        wall_ns=exact_sums(spans.place, wall_ns, count_n)[numbers],
        profiler_ns=exact_sums(spans.place, profiler_ns, count_n)[numbers],
        sums_ns=sums_ns,
        compute=_compute(split, work, works_n),
        idle_ns=idle_ns if known else None,
        exposed=intersect_intervals(layers.communication, spans.windows),
    )


def _compute(split: WallOfSteps, work: IntArray, works_n: int) -> SparseSums:
    sums = np.zeros((works_n, split.compute_ns.shape[1]), dtype=np.int64)
    np.add.at(sums, work, split.compute_ns)
    return SparseSums.of(sums)


def _launches(
    trace: RankTrace, launches: Launches, chosen: _Chosen
) -> tuple[SparseSums, SparseSums]:
    """Return how many launches of full steps there are by work and key, and how long they ran."""
    keys_n, works_n = len(launches.keys), len(chosen.works)
    if not keys_n:
        return SparseSums(), SparseSums()
    kernels = trace.tables["kernels"]
    if chosen.steps is None:
        work = np.where(trace.starts_inside(kernels), 0, -1)
    else:
        # Steps hold all operations before any filter, table by table: kernels are the first.
        step = chosen.steps.step[: len(trace.unfiltered["kernels"])]
        if len(launches.key) != step.size:
            step = step[trace.kept["kernels"]]
        work_of = np.full(len(chosen.steps) + 1, -1, dtype=np.int64)
        work_of[chosen.row] = chosen.work
        work = work_of[step]
    code = (work * keys_n + launches.key)[work >= 0]
    took_ns = (kernels["end_ns"] - kernels["start_ns"])[work >= 0]
    launched_n = np.bincount(code, minlength=works_n * keys_n).astype(np.int64)
    spent_ns = exact_sums(code, took_ns, works_n * keys_n)
    shape = works_n, keys_n
    return SparseSums.of(launched_n.reshape(shape)), SparseSums.of(spent_ns.reshape(shape))
