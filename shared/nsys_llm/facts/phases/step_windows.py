"""What the GPU does from the end of one step to the end of the next: its work, other work, none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.facts.phases.rank_ops import RankOps
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import (
    IntArray,
    clipped_lengths,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.trace.rank_trace import RankTrace


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
