"""What one rank's host spent in CUDA API calls, by function and by class of function.

The table's sums are those of all threads. The GPU is busy where any operation runs on any device of
the process, so `hidden` time is host time that cost the GPU nothing; a filter by NVTX range, which
leaves fewer operations, does not make the GPU idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.numeric.distributions import HistogramByName, Spread, ValueCounts
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.longest import longest_starts
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import API_CLASSES, classify_api
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import RankTrace

from .host_time import GroupTimes, HostTime

#: Classes in the order of their codes.
CLASS_NAMES: Final = tuple(API_CLASSES)


@dataclass(frozen=True)
class ApiClasses:
    """Classes of one rank, in the order of `CLASS_NAMES`; arrays of shape (classes,).

    Attributes:
        calls_n: Calls that start in the window.
        times: Time inside the window.
    """

    calls_n: IntArray
    times: GroupTimes


@dataclass(frozen=True)
class RankApis:
    """The API calls of one rank, by function; arrays of shape (functions,).

    Attributes:
        names: Of the functions, without version, sorted.
        spread: Of whole calls that start in the window.
        times: Time inside the window.
        longest_start_ns: Start of the longest call, the earliest of equals; NULL_INT for none.
    """

    names: tuple[str, ...]
    spread: Spread
    times: GroupTimes
    longest_start_ns: IntArray
    broken_n: IntArray
    classes: ApiClasses


def map_apis(trace: RankTrace, calls: Table, broken: Table) -> tuple[RankApis, HistogramByName]:
    """Reduce the API calls of one rank.

    Returns:
        Its rows, and how often each function took how long.
    """
    calls_n, ids = len(calls), calls["name_id"]
    if len(broken):
        ids = np.concatenate((ids, broken["name_id"]))
    names, codes = coded_names(ids, trace.strings, strip_api_version)
    code = codes[:calls_n]
    class_of = np.array([CLASS_NAMES.index(classify_api(name)) for name in names], dtype=np.int64)
    times, class_times = HostTime.of(
        calls["start_ns"],
        calls["end_ns"],
        code,
        calls["global_tid"],
        trace.gpu_busy,
        trace.windows_ns,
    ).by_groups(class_of, len(CLASS_NAMES))
    inside, whole_ns = trace.starts_inside(calls), calls["end_ns"] - calls["start_ns"]
    counted = (code, whole_ns) if inside.all() else (code[inside], whole_ns[inside])
    counts = ValueCounts.from_values(*counted)
    spread = counts.spread(len(names))
    rank_apis = RankApis(
        names=names,
        spread=spread,
        times=times,
        longest_start_ns=longest_starts(
            code, calls["start_ns"], whole_ns, inside, spread.moments.maximum
        ),
        broken_n=np.bincount(codes[calls_n:], minlength=len(names)).astype(np.int64),
        classes=ApiClasses(summed(class_of, spread.moments.n, len(CLASS_NAMES)), class_times),
    )
    return rank_apis, HistogramByName(names, counts)
