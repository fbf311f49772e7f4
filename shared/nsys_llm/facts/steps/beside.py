"""Work beside the steps of a rank: of another pace, or other steps as of an evaluation."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.steps import REPEATED, Beside, Steps, first_operations, with_operations
from nsys_llm.numeric.grouping import (
    distinct_codes,
    distinct_rows,
    exact_sums,
    is_constant,
    replaced,
)
from nsys_llm.numeric.intervals import IntArray, starts_inside, union_intervals
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.taxonomy.step_names import STEP, is_warmup
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.rank_trace import RankTrace
from nsys_llm.trace.steps import OtherSteps

#: Work that ends so many times the median own window after its step began is not of its pace; from
#: the field.
_TIMES: Final = 2
#: Fewer ranges of a name are no steps; and less of the launched GPU time is no matter, percent.
_LEAST: Final = 3
_LEAST_PCT: Final = 1.0
_NEVER: Final = int(np.iinfo(np.int64).max)


def without_beside(trace: RankTrace, steps: Steps) -> Steps:
    """Return steps without the kernels on other streams that end far behind their own work.

    All kernels that compute of a step on a stream belong to it, or none.
    """
    kernels = trace.unfiltered["kernels"]
    step = steps.step[: len(kernels)]
    rows = np.flatnonzero(step >= 0)
    if steps.on_gpu or "stream_id" not in kernels or not rows.size:
        return steps
    if is_constant(kernels["stream_id"]):
        return steps
    first, stream = distinct_rows([kernels["stream_id"][rows], kernels["device_id"][rows]])
    of_step = step[rows].astype(np.int64)
    used, group = distinct_codes(of_step * first.size + stream)
    took_ns = exact_sums(stream, kernels["end_ns"][rows] - kernels["start_ns"][rows], first.size)
    own = _own_streams(used % first.size, took_ns, kernels["device_id"][rows][first])
    last_ns = np.full(used.size, np.iinfo(np.int64).min)
    np.maximum.at(last_ns, group, kernels["end_ns"][rows])
    late_ns = last_ns - steps.start_ns[used // first.size]
    is_own = own[used % first.size]
    window_ns = int(np.median(late_ns[is_own]))
    far = ~is_own & (late_ns > _TIMES * window_ns)
    if not far.any():
        return replace(steps, beside=Beside(window_ns, _TIMES * window_ns, 0, 0))
    rows = rows[far[group]]
    ids = kernels["demangled_name_id"][rows]
    talks = replaced(
        ids, lambda keys: np.array([is_communication(text_of(k, trace.strings)) for k in keys])
    )
    rows = rows[talks == 0]
    taken_ns = int((kernels["end_ns"][rows] - kernels["start_ns"][rows]).sum())
    kept = steps.step.copy()
    kept[rows] = -1
    kept.setflags(write=False)
    return replace(
        steps, step=kept, beside=Beside(window_ns, _TIMES * window_ns, rows.size, taken_ns)
    )


def _own_streams(stream: IntArray, took_ns: IntArray, device: IntArray) -> IntArray:
    """Return of each stream whether most steps of its device work on it; shape (streams,).

    Args:
        stream: Shape (n,), once for each step that works on it.
        took_ns: Shape (streams,), its kernel time: of several it decides.
    """
    steps_n = exact_sums(stream, np.ones(stream.size, dtype=np.int64), device.size)
    own = np.zeros(device.size, dtype=bool)
    for code in np.unique(device).tolist():
        here = np.flatnonzero(device == code)
        own[here[np.lexsort((took_ns[here], steps_n[here]))[-1]]] = True
    return own


def other_steps(marked: MarkedRanges, steps: Steps) -> OtherSteps | None:
    """Return the ranges outside of steps that hold most of the GPU time there; None without any.

    They repeat, on one thread, after the first step has begun.
    """
    spans = union_intervals(steps.start_ns, steps.end_ns)
    rows = np.flatnonzero(
        ~starts_inside(marked.start_ns, spans)
        & (marked.start_ns >= steps.start_ns[0])
        & ~marked.which(is_warmup)
    )
    best, least_ns = None, _LEAST_PCT / 100 * steps.ops.launched_gpu_ns
    for name, every in marked.by_key(rows):
        some = marked.of_one_thread(every)
        held_ns = marked.held_ns(some, steps.ops) if some.size >= _LEAST else 0
        if held_ns > max(least_ns, best[0] if best else 0):
            best = held_ns, name, some
    if best is None:
        return None
    _, name, some = best
    kind = np.zeros(some.size, dtype=np.int64)
    others = with_operations(marked.spans(some, name, STEP, REPEATED), steps.ops, _NEVER, kind)
    first_ns, _ = first_operations(others)
    end_ns = np.stack([others.windows_ns(device) for device in others.devices]).max(axis=0)[:, 1]
    worked = first_ns < end_ns
    return OtherSteps(name, int(worked.sum()), int(np.median((end_ns - first_ns)[worked])))
