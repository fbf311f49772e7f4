"""Calls of one rank by function: how often, how long, and beside what the GPU did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.distributions import Spread, ValueCounts
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.longest import longest_starts
from nsys_llm.profile.tables import Table
from nsys_llm.report.columns import Columns, nullable, spread_columns
from nsys_llm.trace.rank_trace import RankTrace

from .host_time import GroupTimes, HostTime


@dataclass(frozen=True)
class CallRows:
    """Functions of one rank; arrays of shape (functions,).

    Attributes:
        names: Sorted.
        spread: Of whole calls that start in the window.
        times: Time inside the window.
        longest_start_ns: Start of the longest call, the earliest of equals; NULL_INT for none.
    """

    names: tuple[str, ...]
    spread: Spread
    times: GroupTimes
    longest_start_ns: IntArray

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        calls: Table,
        code: IntArray,
        inside: npt.NDArray[np.bool_],
        times: GroupTimes,
    ) -> tuple[CallRows, ValueCounts]:
        """Count calls by function.

        Args:
            names: Of the functions, sorted.
            calls: With start_ns and end_ns.
            code: Shape (calls,), positions in `names`.
            inside: Shape (calls,), which start in the window.

        Returns:
            The rows, and how often a call of each function took how long.
        """
        whole_ns = calls["end_ns"] - calls["start_ns"]
        counted = (code, whole_ns) if inside.all() else (code[inside], whole_ns[inside])
        counts = ValueCounts.from_values(*counted)
        spread = counts.spread(len(names))
        longest_ns = spread.moments.maximum
        starts = longest_starts(code, calls["start_ns"], whole_ns, inside, longest_ns)
        return cls(names, spread, times, starts), counts


def host_time(trace: RankTrace, calls: Table) -> HostTime:
    """Return the calls, cut to the windows, beside the GPU's work."""
    return HostTime.of(
        calls["start_ns"], calls["end_ns"], calls["global_tid"], trace.gpu_busy, trace.windows_ns
    )


def call_columns(rows: CallRows) -> Columns:
    """Return the columns that all tables of functions have."""
    columns = spread_columns(rows.spread)
    columns["calls_n"] = columns.pop("launches_n")
    return {
        **columns,
        "threads_n": rows.times.threads_n,
        "total_ns": rows.times.total_ns,
        "thread_union_ns": rows.times.thread_union_ns,
        "longest_start_ns": nullable(rows.longest_start_ns),
    }
