"""What one rank's host spent in CUDA API calls, by function and by class of function.

The table's sums are those of all threads. The GPU is busy where any operation runs on any device of
the process, so `hidden` time is host time that cost the GPU nothing; a filter by NVTX range, which
leaves fewer operations, does not make the GPU idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.profiler_time import HeldCalls, held_idle
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import HistogramByName
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import (
    IntArray,
    covered_ns,
    intersect_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import API_CLASSES, WAITING_CLASSES, classify_api
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

from .calls import CallRows, host_time
from .host_time import GroupTimes, drained_gaps

#: Classes in the order of their codes.
CLASS_NAMES: Final = tuple(API_CLASSES)

#: The steady part of a window is what follows its first quarter: set-up is over by then, in
#: captures of more than a few steps. Without NVTX ranges nothing tells the first step.
_SETUP_QUARTERS: Final = 1


@dataclass(frozen=True)
class ApiClasses:
    """Classes of one rank, in the order of `CLASS_NAMES`; arrays of shape (classes,).

    Attributes:
        calls_n: Calls that start in the window.
        times: Time inside the window.
        steady_n: Calls that start in the steady part of the window.
        steady_total_ns: Their whole time.
        steady_window_ns: Length of the steady part, the same for all.
        window_ns: Length of the whole window, the same for all.
        drained_n: Idle gaps of the GPU that begin inside a call and end after it; NULL_INT for
            classes that do not wait.
        profiler_ns: Time in which the profiler held calls while the GPU was idle between
            operations: part of the time that they are exposed.
    """

    calls_n: IntArray
    times: GroupTimes
    steady_n: IntArray
    steady_total_ns: IntArray
    steady_window_ns: IntArray
    window_ns: IntArray
    drained_n: IntArray
    drained_ns: IntArray
    profiler_ns: IntArray


@dataclass(frozen=True)
class RankApis:
    """The API calls of one rank; `broken_n` are those of each function without sane times."""

    functions: CallRows
    broken_n: IntArray
    classes: ApiClasses


def map_apis(
    trace: RankTrace, calls: Table, broken: Table, held: HeldCalls
) -> tuple[RankApis, HistogramByName]:
    """Reduce the API calls of one rank.

    Args:
        broken: Those without sane times.
        held: Which of the calls the profiler held.

    Returns:
        Its rows, and how often each function took how long.
    """
    calls_n, ids = len(calls), calls["name_id"]
    if len(broken):
        ids = np.concatenate((ids, broken["name_id"]))
    names, codes = coded_names(ids, trace.strings, strip_api_version)
    code = codes[:calls_n]
    of_name = np.array([CLASS_NAMES.index(classify_api(name)) for name in names], dtype=np.int64)
    inside = trace.starts_inside(calls)
    times, class_times = host_time(trace, calls).by_groups(
        code, len(names), of_name, len(CLASS_NAMES)
    )
    functions, counts = CallRows.of(names, calls, code, inside, times)
    broken_n = np.bincount(codes[calls_n:], minlength=len(names)).astype(np.int64)
    classes = ApiClasses(
        _by_class(functions.spread.moments.n, of_name),
        class_times,
        *_steady(trace, calls, code, inside, of_name),
        *_drained(trace, calls, code, of_name),
        _profiler_ns(trace, calls, of_name[code], held),
    )
    return RankApis(functions, broken_n, classes), HistogramByName(names, counts)


def _by_class(values: IntArray, of_name: IntArray) -> IntArray:
    return summed(of_name, values, len(CLASS_NAMES))


def _steady(
    trace: RankTrace,
    calls: Table,
    code: IntArray,
    inside: npt.NDArray[np.bool_],
    of_name: IntArray,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return number and time of the calls in the steady part, its length, and the window's."""
    from_ns, to_ns, window_ns, steady_window_ns = _steady_part(trace)
    start_ns = calls["start_ns"]
    steady = inside & (start_ns >= from_ns) & (start_ns < to_ns)
    steady_code = code[steady]
    calls_n = np.bincount(steady_code, minlength=len(of_name))
    total_ns = summed(steady_code, (calls["end_ns"] - start_ns)[steady], len(of_name))
    return (
        _by_class(calls_n, of_name),
        _by_class(total_ns, of_name),
        np.full(len(CLASS_NAMES), steady_window_ns),
        np.full(len(CLASS_NAMES), window_ns),
    )


def _steady_part(trace: RankTrace) -> tuple[int, int, int, int]:
    """Return begin and end of the steady part, and the lengths of the window and of that part."""
    windows = trace.windows_ns
    if windows is None:
        ops = [trace.tables[name] for name in OP_TABLES if len(trace.tables.get(name, ()))]
        first_ns = min((int(op["start_ns"].min()) for op in ops), default=0)
        last_ns = max((int(op["end_ns"].max()) for op in ops), default=0)
        windows = np.array([[first_ns, last_ns]], dtype=np.int64)
    if not len(windows):
        return 0, 0, 0, 0
    first_ns, last_ns = int(windows[0, 0]), int(windows[-1, 1])
    from_ns = first_ns + (last_ns - first_ns) * _SETUP_QUARTERS // 4
    before_ns, whole_ns = covered_ns(np.array([from_ns, last_ns]), windows).tolist()
    return from_ns, last_ns, whole_ns, whole_ns - before_ns


def _drained(
    trace: RankTrace, calls: Table, code: IntArray, of_name: IntArray
) -> tuple[IntArray, IntArray]:
    """Return number and time of the gaps that waits of each class leave."""
    gaps = np.full((2, len(CLASS_NAMES)), NULL_INT, dtype=np.int64)
    for name in WAITING_CLASSES:
        kind = CLASS_NAMES.index(name)
        gaps[:, kind] = 0
        if not (of_name == kind).any():
            continue
        selected = (of_name == kind)[code]
        spans = union_intervals(calls["start_ns"][selected], calls["end_ns"][selected])
        gaps[:, kind] = drained_gaps(spans, trace.gpu_busy, trace.windows_ns)
    return gaps[0], gaps[1]


def _profiler_ns(trace: RankTrace, calls: Table, kind: IntArray, held: HeldCalls) -> IntArray:
    """Return by class how long the profiler held calls with the GPU idle, inside the windows."""
    held_ns, busy = np.zeros(len(CLASS_NAMES), dtype=np.int64), trace.gpu_busy
    for value in np.unique(kind[held.row]).tolist():
        spans = held_idle(held.spans_of(calls, kind == value), busy)
        if trace.windows_ns is not None:
            spans = intersect_intervals(spans, trace.windows_ns)
        held_ns[value] = total_length_ns(spans)
    return held_ns
