"""Work of another pace that a step launches: a prompt read beside decode steps, on its own stream.

Its end is no step's end. Pure numpy, but for names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from nsys_llm.facts.steps.steps import Beside, Steps
from nsys_llm.numeric.grouping import (
    distinct_codes,
    distinct_rows,
    exact_sums,
    is_constant,
    replaced,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.rank_trace import RankTrace

#: Work that ends so many times the median own window after its step began is not of its pace; from
#: the field.
_TIMES: Final = 2


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
        device: Shape (streams,).
    """
    steps_n = exact_sums(stream, np.ones(stream.size, dtype=np.int64), device.size)
    own = np.zeros(device.size, dtype=bool)
    for code in np.unique(device).tolist():
        here = np.flatnonzero(device == code)
        own[here[np.lexsort((took_ns[here], steps_n[here]))[-1]]] = True
    return own
