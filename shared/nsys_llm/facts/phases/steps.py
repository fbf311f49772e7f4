"""The steps of one rank: host time, GPU time, and how much of it each phase has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.phases.range_spans import gpu_spans
from nsys_llm.facts.phases.rank_ops import RankOps
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.grouping import distinct_codes, exact_sums
from nsys_llm.numeric.intervals import (
    IntArray,
    clipped_lengths,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.trace.rank_trace import RankTrace
from nsys_llm.trace.steps import StepKind


@dataclass(frozen=True)
class StepWindows:
    """The windows of steps on the clock of their rank; arrays of shape (steps,).

    A window ends with the range of its step or its GPU work, whichever is later. It begins with the
    range, or with the end of the window before, so that windows are disjoint, however far the host
    is ahead; what lies between two steps, as of a server without requests, is in none.

    Attributes:
        start_ns: The profile's own clock.
        end_ns: Likewise.
        other_ns: Time in which the GPU runs only what was launched outside of all steps.
        idle_ns: Time in which nothing runs.
        other_name: The operation with most time that was launched outside of all steps; "": none.
        other_range: The innermost range that launched it; "" outside of all ranges.
    """

    start_ns: IntArray
    end_ns: IntArray
    other_ns: IntArray
    idle_ns: IntArray
    other_name: tuple[str, ...]
    other_range: tuple[str, ...]

    @classmethod
    def of(
        cls,
        trace: RankTrace,
        ops: RankOps,
        start_ns: IntArray,
        end_ns: IntArray,
        gpu_end_ns: IntArray,
    ) -> StepWindows:
        """Look at the windows of steps that have ranges, and GPU work until `gpu_end_ns`, or -1."""
        ends = np.maximum.accumulate(np.maximum(end_ns, gpu_end_ns))
        starts = np.minimum(np.maximum(start_ns, np.concatenate(([0], ends[:-1]))), ends)
        every, apart = ops.ranged.selected, ops.step < 0
        other, inside = (
            union_intervals(every.start_ns[some], every.end_ns[some]) for some in (apart, ~apart)
        )
        name, launched = _most(ops, np.flatnonzero(apart), starts, ends)
        return cls(
            start_ns=starts,
            end_ns=ends,
            other_ns=clipped_lengths(starts, ends, subtract_intervals(other, inside)),
            idle_ns=ends - starts - clipped_lengths(starts, ends, trace.gpu_busy),
            other_name=name,
            other_range=launched,
        )


def _most(
    ops: RankOps, rows: IntArray, starts: IntArray, ends: IntArray
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the operation, of some, with most time in each window, and its innermost range."""
    every, texts = ops.ranged.selected, ops.ranged.names
    window = np.searchsorted(ends, every.start_ns[rows], side="right")
    rows, window = rows[window < ends.size], window[window < ends.size]
    first, last = (
        np.clip(at[rows], starts[window], ends[window]) for at in (every.start_ns, every.end_ns)
    )
    piece = every.piece[rows]
    label = np.where(piece >= 0, texts.code[piece], -1) if texts.code.size else piece
    pairs_n = len(texts.texts) + 1
    pair = ops.name[rows].astype(np.int64) * pairs_n + label + 1
    codes, code = distinct_codes(window * (pairs_n * max(len(ops.names), 1)) + pair)
    sums = np.bincount(code, last - first, minlength=codes.size)
    names, ranges = [""] * ends.size, [""] * ends.size
    # The last of a window is the one with most time.
    for at in np.argsort(sums, kind="stable")[np.count_nonzero(sums == 0) :].tolist():
        place, pair_code = divmod(int(codes[at]), pairs_n * len(ops.names))
        name, after = divmod(pair_code, pairs_n)
        names[place] = ops.names[name]
        ranges[place] = texts.texts[after - 1] if after else ""
    return tuple(names), tuple(ranges)


_NEVER: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class StepRows:
    """The steps of one rank in order of time; arrays of shape (steps,) unless said otherwise.

    Attributes:
        number: Of each on its rank, from 0.
        first_ns: Begin of the first step, whatever the filters leave.
        start_ns: Begin of each range, the report's own clock.
        ops_n: Operations launched in it that start in the window.
        gpu_start_ns: Begin of the first operation; NULL_INT without one.
        gpu_end_ns: End of the last one, likewise.
        span_ns: From the one to the other in the window, likewise.
        idle_inside_ns: Of that, time in which nothing ran, likewise.
        phases: The phases that any step has, in the order of the map.
        phase_ns: Shape (steps, phases), GPU time.
        phase: Position of the phase with most of it, the first of equals; -1 without GPU time.
        warmup_n: How many of the first steps are warm-up.
        full: Whether no end of the capture cuts it.
        windows: What the GPU does meanwhile.
    """

    kind: StepKind
    names: tuple[str, ...]
    number: IntArray
    first_ns: int
    start_ns: IntArray
    end_ns: IntArray
    ops_n: IntArray
    kernels_n: IntArray
    gpu_start_ns: IntArray
    gpu_end_ns: IntArray
    span_ns: IntArray
    idle_inside_ns: IntArray
    phases: tuple[str, ...]
    phase_ns: IntArray
    phase: IntArray
    warmup_n: int
    full: npt.NDArray[np.bool_]
    windows: StepWindows

    @property
    def warmup(self) -> npt.NDArray[np.bool_]:
        """Return which steps are warm-up."""
        return np.asarray(self.number < self.warmup_n)

    @property
    def steady(self) -> npt.NDArray[np.bool_]:
        """Return which steps are in statistics: full ones that are no warm-up."""
        return np.asarray(self.full & ~self.warmup)

    @property
    def gpu_ns(self) -> IntArray:
        """GPU time of each step."""
        return np.asarray(self.phase_ns.sum(axis=1))


def map_steps(trace: RankTrace, ops: RankOps) -> StepRows | None:
    """Look at the steps of one rank; None where there are none.

    With a filter, those that it leaves something of.
    """
    steps = ops.steps
    if steps is None or steps.on_gpu:
        return None  # this recipe tells of what is launched
    steps_n, phases_n = len(steps), len(ops.phase_names)
    ops_n, kernels_n, first_ns, last_ns, by_phase = _sums(ops, steps_n, phases_n)
    some = first_ns < _NEVER
    kept = np.arange(steps_n) if ops.ranged.kept is None else np.flatnonzero(some)
    span_ns, idle_ns = (np.full(steps_n, NULL_INT, dtype=np.int64) for _ in range(2))
    span_ns[some], idle_ns[some] = gpu_spans(trace, first_ns[some], last_ns[some])
    used = np.flatnonzero(by_phase.any(axis=0))
    phase_ns = by_phase[:, used]
    phase = np.full(steps_n, -1, dtype=np.int64)
    if used.size:
        phase = np.where(phase_ns.any(axis=1), phase_ns.argmax(axis=1), phase)
    return StepRows(
        kind=steps.kind,
        names=tuple(str(steps.names[row]) for row in kept.tolist()),
        number=kept,
        first_ns=int(steps.start_ns[0]),
        start_ns=steps.start_ns[kept],
        end_ns=steps.end_ns[kept],
        ops_n=ops_n[kept],
        kernels_n=kernels_n[kept],
        gpu_start_ns=np.where(some, first_ns, NULL_INT)[kept],
        gpu_end_ns=np.where(some, last_ns, NULL_INT)[kept],
        span_ns=span_ns[kept],
        idle_inside_ns=idle_ns[kept],
        phases=tuple(ops.phase_names[code] for code in used.tolist()),
        phase_ns=phase_ns[kept],
        phase=phase[kept],
        warmup_n=steps.warmup_n,
        full=steps.full[kept],
        windows=StepWindows.of(trace, ops, steps.start_ns[kept], steps.end_ns[kept], last_ns[kept]),
    )


def _sums(ops: RankOps, steps_n: int, phases_n: int) -> tuple[IntArray, ...]:
    """Return ops_n, kernels_n, first_ns, last_ns and GPU time of each step, see `StepRows`.

    The first four of shape (steps,), `_NEVER` and -1 for the times of a step without an operation;
    the last of shape (steps, phases).
    """
    attributed, codes_n = ops.ranged.selected, steps_n * phases_n
    ops_n, kernels_n = np.zeros((2, steps_n), dtype=np.int64)
    first_ns = np.full(steps_n, _NEVER, dtype=np.int64)
    last_ns = np.full(steps_n, -1, dtype=np.int64)
    gpu_ns = np.zeros(codes_n, dtype=np.int64)
    for block in blocks(ops.step.size, codes_n):
        rows = block.start + np.flatnonzero(ops.step[block] >= 0)
        step, inside = ops.step[rows].astype(np.int64), ops.inside[rows]
        ops_n += np.bincount(step[inside], minlength=steps_n)
        kernels_n += np.bincount(step[inside & ops.is_kernel[rows]], minlength=steps_n)
        np.minimum.at(first_ns, step, attributed.start_ns[rows])
        np.maximum.at(last_ns, step, attributed.end_ns[rows])
        code = step * phases_n + ops.phase[rows]
        gpu_ns += exact_sums(code, ops.clipped_ns[rows], codes_n)
    return ops_n, kernels_n, first_ns, last_ns, gpu_ns.reshape(steps_n, phases_n)
