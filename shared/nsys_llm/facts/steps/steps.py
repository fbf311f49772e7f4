"""The steps of one rank, what all ways to find them return, and on each of its devices. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.steps.launched_ops import LaunchedOps
from nsys_llm.numeric.enclosing import innermost
from nsys_llm.numeric.grouping import distinct, joined
from nsys_llm.numeric.intervals import IntArray, clipped_lengths
from nsys_llm.taxonomy.step_names import usual_batch
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace
from nsys_llm.trace.steps import DeviceSteps, SlowBegin, StepKind, warmup_n

#: How steps were found, in the order in which they are looked for.
OPTION: Final = "--step"
STEP_KERNEL: Final = "--step-kernel"
ENGINE: Final = "engine"
REPEATED: Final = "repeated range"
NUMBERED: Final = "numbered range"
GRAPH_REPLAYS: Final = "graph replays"
KERNEL_PERIOD: Final = "kernel period"

#: Why a step is in no statistic; no text for one that is.
COUNTED: Final = ""
FILTERED: Final = "filtered"
CUT: Final = "cut"
WARMUP: Final = "warm-up"
EMPTY: Final = "empty"
NOT_RECORDED: Final = "not recorded"

#: A first step that takes so many times the median of its kind is warm-up; ours.
_WARMUP_TIMES: Final = 2

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class StepSpans:
    """Where steps lie on the host, before it is known what they hold; arrays of shape (steps,).

    Attributes:
        name: What all of them share: the name of their ranges with # for running numbers, what the
            engine calls them, or a kernel.
        unit: `taxonomy.step_names.STEP`, `LAYER`, `GRAPH` or `PERIOD`.
        source: How they were found, one of the constants above.
        start_ns: Ascending, the profile's clock.
        end_ns: Of those that are no ranges but lie between two marks: the next one's start.
        closed: Whether its end is known: no end of the capture cuts it, and no mark is missing.
        on_gpu: Whether the times are those of operations on the GPU, where no launch is recorded.
        drafts: Shape (drafts, 2), ascending: ranges like those of steps in which an engine guesses
            tokens that a step then verifies; None without any.
    """

    name: str
    unit: str
    source: str
    names: npt.NDArray[Any]
    start_ns: IntArray
    end_ns: IntArray
    closed: _Mask
    on_gpu: bool = False
    drafts: IntArray | None = None

    def __len__(self) -> int:
        return int(self.start_ns.size)


@dataclass(frozen=True)
class Beside:
    """What steps launched that is no part of them; see `beside.py`.

    Attributes:
        window_ns: Median time from a step's begin to the end of its work on its own stream.
        limit_ns: What ends later than that after the begin, on another stream, is beside.
    """

    window_ns: int
    limit_ns: int
    kernels_n: int
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class Steps(StepSpans):
    """The steps of one rank with their operations; arrays of shape (steps,).

    Attributes:
        full: Whether it is whole: neither an end of the capture nor a missing mark cuts it, and no
            device runs in it what was launched before the capture; and all of its work is recorded.
        unrecorded: Which launched work that left no row.
        begin: The first that take far longer than the others of their kind.
        warmup_n: How many of the first are warm-up: as far as this rank tells, or as all ranks do.
        step: Shape (operations,), int32, the step of each operation of the rank before any filter,
            table by table as in `OP_TABLES`: in whose span it was launched, by any thread; of spans
            that nest, the innermost. -1 outside of all, and of what runs beside them.
        lost_end_ns: When the last work of each that left no row had certainly ended; else NULL.
        beside: Where a step's kernels run on several streams.
    """

    full: _Mask
    unrecorded: _Mask
    begin: SlowBegin
    warmup_n: int
    step: npt.NDArray[np.int32]
    ops: LaunchedOps
    lost_end_ns: IntArray
    beside: Beside | None = None
    _windows_ns: dict[int, IntArray] = field(default_factory=dict, init=False, compare=False)

    @property
    def kind(self) -> StepKind:
        """What they are."""
        lost_n, batch = int(np.count_nonzero(self.unrecorded)), usual_batch(self.names.tolist())
        return StepKind(self.name, self.unit, self.source, len(self), self.begin, lost_n, batch)

    @property
    def warmup(self) -> _Mask:
        """Which these are."""
        return np.arange(len(self)) < self.warmup_n

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The CUDA devices on which an operation of a step ran, sorted."""
        used = [distinct(some.device_id[self.step[some.rows] >= 0]) for some in self.ops.blocks()]
        return tuple(np.unique(joined(used)).tolist())

    def windows_ns(self, device_id: int) -> IntArray:
        """Return the window [E_(k-1), E_k) of each step on a device, shape (steps, 2).

        E_k is the latest end of an operation of steps 0 to k, and of what they launched that left
        no row, E_-1 the start of step 0 or the end of what was launched before it, whichever is
        later: windows add up, however steps interleave. A step without an operation that ends
        later than all before has length 0.
        """
        if device_id not in self._windows_ns:  # two threads may both make them: equal values
            windows = self._made_windows_ns(device_id)
            windows.setflags(write=False)  # several analyses of a rank share them
            self._windows_ns[device_id] = windows
        return self._windows_ns[device_id]

    def _made_windows_ns(self, device_id: int) -> IntArray:
        latest = self.lost_end_ns.copy()
        first_ns = int(self.start_ns[0])
        begin_ns = first_ns  # E_-1
        for some in self.ops.blocks():
            rows, step = some.device_id == device_id, self.step[some.rows]
            inside = rows & (step >= 0)
            np.maximum.at(latest, step[inside], some.end_ns[inside])
            at_ns = np.where(some.launched_ns == NULL_INT, some.start_ns, some.launched_ns)
            before = rows & (step < 0) & (at_ns < first_ns)
            begin_ns = int(some.end_ns[before].max(initial=begin_ns))
        edges = np.maximum.accumulate(np.concatenate(([begin_ns], latest)))
        return np.column_stack((edges[:-1], edges[1:]))


def with_operations(
    spans: StepSpans,
    ops: LaunchedOps,
    cut_from_ns: int,
    kind: IntArray,
    lost: IntArray | None = None,
) -> Steps:
    """Put the operations of a rank into its steps.

    Args:
        cut_from_ns: Launches from here on had not run when the capture ended.
        kind: Shape (steps,): warm-up is told among steps of one kind.
    """
    step = np.empty(len(ops), dtype=np.int32)
    for some in ops.blocks():
        at_ns = some.start_ns if spans.on_gpu else some.launched_ns
        inside = innermost(at_ns, spans.start_ns, spans.end_ns)
        step[some.rows] = np.where(at_ns == NULL_INT, -1, inside)
    step.setflags(write=False)  # several analyses of a rank share it
    lost_end_ns = np.full(len(spans), NULL_INT, dtype=np.int64)
    if lost is not None and len(lost):
        inside = innermost(lost[:, 0], spans.start_ns, spans.end_ns)
        np.maximum.at(lost_end_ns, inside[inside >= 0], lost[inside >= 0, 1])
    unrecorded = lost_end_ns > NULL_INT
    full = spans.closed & (spans.end_ns <= cut_from_ns) & ~unrecorded
    begin = slow_begin(spans.end_ns - spans.start_ns, kind, full)
    return Steps(
        **vars(spans),
        full=full,
        unrecorded=unrecorded,
        begin=begin,
        warmup_n=warmup_n([begin]),
        step=step,
        ops=ops.unread(),
        lost_end_ns=lost_end_ns,
    )


def first_operations(steps: Steps) -> tuple[IntArray, IntArray]:
    """Return when the first operation of each step begins, and the row of its launching call.

    Of a step without any, the largest int64 and -1.
    """
    first_ns = np.full(len(steps), np.iinfo(np.int64).max, dtype=np.int64)
    for some in steps.ops.blocks():
        step = steps.step[some.rows]
        inside = step >= 0
        np.minimum.at(first_ns, step[inside], some.start_ns[inside])
    call, low = np.full(len(steps), -1, dtype=np.int64), 0
    for table in steps.ops.tables:
        step = steps.step[low : low + len(table)]
        rows = np.flatnonzero(step >= 0)
        rows = rows[table["start_ns"][rows] == first_ns[step[rows]]]
        call[step[rows]] = table["launch_row"][rows]
        low += len(table)
    return first_ns, call


def between_marks(
    name: str, unit: str, source: str, names: npt.NDArray[Any], at_ns: IntArray, last_ns: int
) -> StepSpans:
    """Return steps that begin at marks, each where the one before ends.

    Args:
        at_ns: The marks, ascending.
        last_ns: The last step holds what comes up to here, and is not closed.
    """
    ends = np.append(at_ns[1:], max(last_ns, int(at_ns[-1])) + 1)
    closed = np.arange(at_ns.size) < at_ns.size - 1
    return StepSpans(name, unit, source, names, at_ns, ends, closed)


def slow_begin(length_ns: IntArray, kind: IntArray, full: _Mask) -> SlowBegin:
    """Return the first steps that take more than twice the median of the others of their kind.

    Args:
        length_ns: Shape (steps,), in order of time.
        kind: Shape (steps,), any code.
        full: Shape (steps,): a step that is cut says nothing of later ones.
    """
    twice_ns = np.zeros(length_ns.shape, dtype=np.int64)
    for code in np.unique(kind).tolist():
        twice_ns[kind == code] = 2 * np.median(length_ns[kind == code])
    beyond_ns = (2 * length_ns - twice_ns) // 2
    slow = np.logical_and.accumulate(2 * length_ns > _WARMUP_TIMES * twice_ns)
    later = ~slow & full & np.isin(kind, kind[:1] if not slow.any() else kind[slow])
    return SlowBegin(tuple(beyond_ns[slow].tolist()), int(beyond_ns[later].max(initial=0)))


def device_steps(
    trace: RankTrace, steps: Steps | None, *, by_window: bool = True
) -> dict[int, DeviceSteps]:
    """Return the steps of each device of a rank that has some, by its CUDA id.

    Args:
        by_window: Whether a filter also cuts a step of which it leaves all operations, and not all
            of the window. One of a phase does with every step: it leaves out what is between.
    """
    if steps is None:
        return {}
    kept, devices = _kept(trace), {}
    for device_id in sorted(set(steps.devices) & set(trace.device_ids)):
        windows = steps.windows_ns(device_id)
        complete = steps.full & (windows[:, 1] > windows[:, 0])
        complete &= ~_cut(trace, steps, device_id, kept, by_window)
        devices[device_id] = DeviceSteps(windows, complete, has_steps=True, warmup_n=steps.warmup_n)
    return devices


def _kept(trace: RankTrace) -> _Mask | None:
    """Return which operations the filters leave, in the order of `LaunchedOps`; None for all."""
    if trace.complete:
        return None
    tables = [name for name in OP_TABLES if name in trace.unfiltered]
    every = [np.ones(len(trace.unfiltered[name]), dtype=bool) for name in tables]
    masks = zip(tables, every, strict=True)
    return joined([trace.kept.get(name, whole) for name, whole in masks]).astype(bool)


def _cut(
    trace: RankTrace, steps: Steps, device_id: int, kept: _Mask | None, by_window: bool
) -> _Mask:
    """Tell which steps a filter cuts on a device: an operation of theirs is left out, or a time."""
    cut = np.zeros(len(steps), dtype=bool)
    if kept is not None:
        for some in steps.ops.blocks():
            step = steps.step[some.rows]
            lost = (step >= 0) & (some.device_id == device_id) & ~kept[some.rows]
            cut[step[lost]] = True
    if by_window and trace.windows_ns is not None:
        windows = steps.windows_ns(device_id)
        start_ns, end_ns = windows[:, 0], windows[:, 1]
        cut |= clipped_lengths(start_ns, end_ns, trace.windows_ns) < end_ns - start_ns
    return cut
