"""Other steps of a program beside those that most of its time is in, as those of an evaluation."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.step_times import first_operations
from nsys_llm.facts.steps.steps import REPEATED, Steps, with_operations
from nsys_llm.numeric.intervals import starts_inside, union_intervals
from nsys_llm.taxonomy.step_names import STEP, is_warmup
from nsys_llm.trace.steps import OtherSteps

#: Fewer ranges of a name are no steps; and less of the launched GPU time is no matter, percent.
_LEAST: Final = 3
_LEAST_PCT: Final = 1.0
_NEVER: Final = int(np.iinfo(np.int64).max)


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
