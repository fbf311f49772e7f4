"""What one rank's host spent in CUDA API calls, by function and by class of function.

Sums are those of all threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import Spread, ValueCounts
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.longest import longest_starts
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import API_CLASSES, classify_api
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class ApiClasses:
    """The API calls of one rank by class, in the order of `API_CLASSES`; shape (classes,)."""

    spread: Spread
    total_ns: IntArray


@dataclass(frozen=True)
class RankApis:
    """The API calls of one rank, by function; arrays of shape (functions,).

    Attributes:
        names: Of the functions, without version, sorted.
        spread: Of whole calls that start in the window.
        total_ns: Time inside the window.
        longest_start_ns: Start of the longest call, the earliest of equals; NULL_INT for none.
    """

    names: tuple[str, ...]
    spread: Spread
    total_ns: IntArray
    longest_start_ns: IntArray
    broken_n: IntArray
    classes: ApiClasses


def map_apis(trace: RankTrace, calls: Table, broken: Table) -> tuple[RankApis, ByKey]:
    """Reduce the API calls of one rank.

    Returns:
        Its rows, and how often each function took how long.
    """
    calls_n, ids = len(calls), calls["name_id"]
    if len(broken):
        ids = np.concatenate((ids, broken["name_id"]))
    names, codes = coded_names(ids, trace.strings, strip_api_version)
    code = codes[:calls_n]
    inside, whole_ns = trace.starts_inside(calls), calls["end_ns"] - calls["start_ns"]
    counted = (code, whole_ns) if inside.all() else (code[inside], whole_ns[inside])
    counts = ValueCounts.from_values(*counted)
    spread = counts.spread(len(names))
    total_ns = summed(code, trace.clipped_ns(calls), len(names))
    order = list(API_CLASSES)
    class_of = np.array([order.index(classify_api(name)) for name in names], dtype=np.int64)
    rank_apis = RankApis(
        names=names,
        spread=spread,
        total_ns=total_ns,
        longest_start_ns=longest_starts(
            code, calls["start_ns"], whole_ns, inside, spread.moments.maximum
        ),
        broken_n=np.bincount(codes[calls_n:], minlength=len(names)).astype(np.int64),
        classes=ApiClasses(
            counts.regrouped(class_of).spread(len(order)), summed(class_of, total_ns, len(order))
        ),
    )
    return rank_apis, ByKey(names, counts=counts)
