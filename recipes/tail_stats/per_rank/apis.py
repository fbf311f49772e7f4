"""CUDA API calls of one rank, reduced: exact durations by function, and calls that load kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import HistogramByName, Moments, OrderStatistics, ValueCounts
from nsys_llm.numeric.grouping import distinct_codes, distinct_rows, first_of_each, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.longest import longest_starts
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace

from .compact_histogram import CompactHistogram
from .launches import KeyedKernels


@dataclass(frozen=True)
class RankApiTails:
    """API functions of one rank; arrays of shape (functions,).

    Attributes:
        names: Without version suffix, sorted.
        total_ns: Time inside the window, over all threads.
        moments: Of whole calls that start in the window.
        order: Around the percentiles of those.
        profiler_ns: What the profiler took of those calls, see
            `nsys_llm.analyses.device.profiler_time`.
        net: Moments of the same calls without it.
        net_order: Around their percentiles.
        counts: How often which net duration; groups are functions.
        loading: The same of calls that made the first launch of a kernel on a device.
        first_start_ns: Start of the first call in the window; NULL_INT without one.
        first_ns: Its duration, likewise.
        first_profiler_ns: What the profiler took of it, likewise.
        first_loads: 1 where that call made the first launch of a kernel on a device, else 0.
        longest_start_ns: Start of the longest call, the first of equals, likewise.
        net_longest_start_ns: Start of the call that is longest without the profiler, likewise.
    """

    names: tuple[str, ...]
    total_ns: IntArray
    moments: Moments
    order: OrderStatistics
    profiler_ns: IntArray
    net: Moments
    net_order: OrderStatistics
    counts: CompactHistogram
    loading: CompactHistogram
    first_start_ns: IntArray
    first_ns: IntArray
    first_profiler_ns: IntArray
    first_loads: IntArray
    longest_start_ns: IntArray
    net_longest_start_ns: IntArray


@dataclass(frozen=True)
class ApiTails:
    """Many ranks, those without API calls left out.

    Attributes:
        durations: How often a call of each function took how long.
        net: The same without what the profiler took of each call.
    """

    ranks: Mapping[RankKey, RankApiTails] = field(default_factory=dict)
    durations: HistogramByName = field(default_factory=HistogramByName)
    net: HistogramByName = field(default_factory=HistogramByName)


def map_apis(view: RankView, every: KeyedKernels) -> ApiTails:
    """Reduce the API calls of one rank."""
    trace = view.trace
    if not len(trace.tables.get("api_calls", ())):
        return ApiTails()
    calls, _ = trace.host_calls("api_calls", {"loads": _loads(trace, every)})
    inside = trace.starts_inside(calls)
    names, code = coded_names(calls["name_id"], trace.strings, strip_api_version)
    starts, durations = calls["start_ns"], calls["end_ns"] - calls["start_ns"]
    profiler_ns = view.held.each(len(calls))
    net_ns = durations - profiler_ns
    counts = _counted(code, durations, inside)
    net = _counted(code, net_ns, inside) if profiler_ns.any() else counts
    loads = inside & (calls["loads"] == 1)
    n, moments, net_moments = len(names), counts.moments(len(names)), net.moments(len(names))
    tails = RankApiTails(
        names=names,
        total_ns=summed(code, trace.clipped_ns(calls), n),
        moments=moments,
        order=counts.order_statistics(n),
        profiler_ns=summed(code[inside], profiler_ns[inside], n),
        net=net_moments,
        net_order=net.order_statistics(n),
        counts=CompactHistogram.of(net),
        loading=CompactHistogram.of(ValueCounts.from_values(code[loads], net_ns[loads])),
        **_first(code, calls, profiler_ns, inside, n),
        longest_start_ns=longest_starts(code, starts, durations, inside, moments.maximum),
        net_longest_start_ns=longest_starts(code, starts, net_ns, inside, net_moments.maximum),
    )
    return ApiTails({view.key: tails}, HistogramByName(names, counts), HistogramByName(names, net))


def _counted(code: IntArray, values: IntArray, inside: npt.NDArray[np.bool_]) -> ValueCounts:
    if inside.all():
        return ValueCounts.from_values(code, values)
    return ValueCounts.from_values(code[inside], values[inside])


def merged_apis(parts: Sequence[ApiTails]) -> ApiTails:
    """Join partials of distinct ranks. Associative and commutative; the identity is empty."""
    return ApiTails(
        {rank: tails for part in parts for rank, tails in part.ranks.items()},
        HistogramByName.merge([part.durations for part in parts]),
        HistogramByName.merge([part.net for part in parts]),
    )


def _first(
    code: IntArray,
    calls: Table,
    profiler_ns: IntArray,
    inside: npt.NDArray[np.bool_],
    n: int,
) -> dict[str, IntArray]:
    """Return start and duration of the first call of each function, and what is known of it.

    That is the profiler's part, and whether it loads.
    """
    starts = calls["start_ns"]
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        code, inside = code[order], inside[order]
    else:
        order = np.arange(starts.size)
    row = first_of_each(code, order, inside, n, -1)
    none = row < 0
    return {
        "first_start_ns": np.where(none, NULL_INT, starts[row]),
        "first_ns": np.where(none, NULL_INT, calls["end_ns"][row] - starts[row]),
        "first_profiler_ns": np.where(none, NULL_INT, profiler_ns[row]),
        "first_loads": np.where(none, 0, calls["loads"][row]),
    }


def _loads(trace: RankTrace, every: KeyedKernels) -> IntArray:
    """Return which API calls (0 or 1) made the first launch of a kernel on a device.

    That is when the driver loads its code, unless it was told to load everything at once.
    """
    loads = np.zeros(len(trace.tables["api_calls"]), dtype=np.int64)
    _, device = distinct_codes(every.rows["device_id"])
    # Kernels are in order of time, so the first row of each pair is its first launch.
    first, _ = distinct_rows([device, every.name_codes()[every.key]])
    rows = every.rows["launch_row"][first]
    loads[rows[rows >= 0]] = 1
    return loads
