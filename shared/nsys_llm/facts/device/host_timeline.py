"""What the host of one rank did: the calls of its threads, and what tracing and the driver cost.

Calls of one thread may be nested (a runtime call that makes a driver call); the outermost counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.device.profiler_time import overheads
from nsys_llm.numeric.enclosing import first_above
from nsys_llm.numeric.gaps import Positions, start_order
from nsys_llm.numeric.grouping import distinct, distinct_codes
from nsys_llm.numeric.intervals import IntArray, merged_unions, subtract_intervals, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import APPLICATION, COLD_START_KINDS, classify_api
from nsys_llm.taxonomy.cuda_codes import DEVICE_TO_HOST, HOST_TO_DEVICE, PAGEABLE
from nsys_llm.taxonomy.idle_causes import (
    BACK_PRESSURE,
    BLOCKING,
    CAUSE_NAMES,
    MODULE_LOAD,
    SLOW_FIRST_LAUNCH_NS,
    SLOW_FIRST_LAUNCH_TIMES,
    call_cause,
)
from nsys_llm.trace.attribution import early_starts
from nsys_llm.trace.rank_trace import RankTrace, sane_times

#: Calls that are summed up together, for gaps that hold many.
CALLS_BLOCK: Final = 64
_IS_BLOCKING: Final = np.isin(np.arange(len(CAUSE_NAMES)), BLOCKING)


@dataclass(frozen=True)
class ThreadCalls:
    """Calls by thread and, within one, by start; they overlap nowhere.

    Attributes:
        end_ns: Shape (calls,), ascending within a thread; a call inside another one has no length.
        outer: Shape (calls,), the place of the outermost call that was open when it started: its
            own, unless it is nested.
        row: Shape (calls,), the call's row in the table.
        place: Shape (rows,), the place of each row; -1 where it was left out.
        thread: Shape (calls,), code of the thread.
        bounds: Shape (threads + 1,): calls of thread t lie at bounds[t] to bounds[t + 1].
        threads: Shape (threads,), the ids behind the codes, sorted.
    """

    start_ns: IntArray
    end_ns: IntArray
    outer: Positions
    row: Positions
    place: Positions
    thread: Positions
    bounds: IntArray
    threads: IntArray

    @classmethod
    def of(
        cls, start_ns: IntArray, end_ns: IntArray, thread: IntArray, kept: npt.NDArray[np.bool_]
    ) -> ThreadCalls:
        """Sort calls into threads.

        Args:
            start_ns: Shape (rows,), in any order.
            end_ns: Shape (rows,), `end_ns >= start_ns` where kept.
            thread: Shape (rows,), any id.
            kept: Shape (rows,), those that count.
        """
        chosen: slice | IntArray = slice(None) if kept.all() else np.flatnonzero(kept)
        threads, wide = distinct_codes(thread[chosen])
        code = wide.astype(np.int32)
        order = _order(start_ns[chosen], end_ns[chosen], code, len(threads))
        row = np.arange(start_ns.size, dtype=np.int32)[chosen]
        place = row  # where no row is left out or out of order
        if order is not None:
            row, code = row[order], code[order]
        del order
        if row is not place or row.size < start_ns.size:
            place = np.full(start_ns.size, -1, dtype=np.int32)
            place[row] = np.arange(row.size, dtype=np.int32)
        bounds = np.searchsorted(code, np.arange(len(threads) + 1))
        starts, ends = start_ns[row], end_ns[row]  # copies, which are cut in place
        outer = np.arange(row.size, dtype=np.int32)
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            _flatten(starts[low:high], ends[low:high], outer[low:high], low)
        return cls(starts, ends, outer, row, place, code, bounds, threads)

    def code(self, thread: int) -> int:
        """Return the code of a thread (its id); -1 for one without a call."""
        code = int(np.searchsorted(self.threads, thread))
        return code if code < self.threads.size and self.threads[code] == thread else -1

    def spans(self, thread: int) -> IntArray:
        """Return when a thread (its code) was in a call: shape (n, 2), sorted and disjoint."""
        selected = slice(self.bounds[thread], self.bounds[thread + 1])
        spans = np.column_stack((self.start_ns[selected], self.end_ns[selected]))
        return spans[spans[:, 1] > spans[:, 0]]

    def open_at(self, thread: int, at_ns: IntArray) -> IntArray:
        """Return the place of the call that a thread (its code) was in at instants; -1 for none."""
        low, high = self.bounds[thread : thread + 2].tolist()
        place = low + np.searchsorted(self.start_ns[low:high], at_ns, side="right") - 1
        return np.where((place >= low) & (at_ns < self.end_ns[place]), place, -1)

    def ended_before(self, at_ns: IntArray, last: IntArray) -> IntArray:
        """Return the first call that may still run at an instant.

        Args:
            last: Shape (n,), the place of a call of the thread in question.

        Returns:
            Shape (n,): of the thread's calls up to `last`, the first that ends after the instant;
            `last` where all others ended.
        """
        earliest = last.copy()
        low = self.bounds[self.thread[last]]
        search = np.flatnonzero((last > low) & (self.end_ns[np.maximum(last - 1, 0)] > at_ns))
        first = first_above(self.end_ns, at_ns[search], self.thread[last[search]], self.bounds)
        earliest[search] = np.minimum(first, last[search])
        return earliest

    def begun_from(self, at_ns: IntArray, last: IntArray) -> IntArray:
        """Return the first call of the thread of `last` that begins at an instant or later.

        Shape (n,), as the arguments; `last` where that is later. Calls inside one that is open
        begin when it ends.
        """
        return np.minimum(
            first_above(self.start_ns, at_ns - 1, self.thread[last], self.bounds), last
        )


def _order(
    start_ns: IntArray, end_ns: IntArray, code: Positions, threads_n: int
) -> IntArray | None:
    """Return the order by thread, start and nesting; None if that is how the rows are."""
    # Of two calls that start together, the longer is the outer one. One of no length holds
    # nothing, and had returned when the other began.
    order = start_order(
        start_ns, lambda some: ((end_ns[some] > start_ns[some]).astype(np.int64), -end_ns[some])
    )
    if threads_n < 2:
        return order
    code = code if order is None else code[order]
    # Codes of 16 bits are sorted in linear time.
    by_thread = np.argsort(code.astype(np.uint16) if threads_n <= 1 << 16 else code, kind="stable")
    return by_thread if order is None else order[by_thread]


def _flatten(starts: IntArray, ends: IntArray, outer: Positions, first: int) -> None:
    """Cut calls of one thread, in place, so that each instant belongs to the one begun first."""
    reach = np.maximum.accumulate(ends)
    inside = starts[1:] < reach[:-1]
    if not inside.any():
        return
    owner = np.arange(starts.size)
    longer = np.concatenate(([True], ends[1:] > reach[:-1]))
    owner = np.maximum.accumulate(np.where(longer, owner, 0))
    outer[1:][inside] = first + owner[:-1][inside]
    starts[1:] = np.maximum(starts[1:], reach[:-1])
    ends[:] = reach


@dataclass(frozen=True)
class DriverWork:
    """What the driver recorded as its own on one thread: shape (n, 2), sorted and disjoint."""

    cause: int
    thread: int
    spans: IntArray


@dataclass(frozen=True)
class HostTimeline:
    """The calls of one rank, and what tracing and the driver cost.

    Attributes:
        cause: Shape (calls,), the cause that time in each call has.
        graph_launch: Shape (calls,), which launch CUDA graphs.
        profiler: When the profiler did its own work in this process: shape (n, 2), disjoint.
        away: By cause when nobody knows of idle time, or nothing was to do: likewise, disjoint.
        driver: What the driver did, none of it in these.
        clock_error_ns: By how much the clocks of host and GPU disagree at least, see
            `nsys_llm.trace.attribution`; 0 where nothing shows it.
    """

    calls: ThreadCalls
    cause: npt.NDArray[np.int8]
    graph_launch: npt.NDArray[np.bool_]
    profiler: IntArray
    away: Mapping[int, IntArray]
    driver: tuple[DriverWork, ...]
    clock_error_ns: int = 0
    _spans: dict[tuple[int, bool], tuple[IntArray, IntArray]] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: RankTrace, profiler: IntArray, away: Mapping[int, IntArray]) -> HostTimeline:
        """Return the host of one rank; without API calls, one without threads.

        It looks at api_calls, both tables of overheads, names of kernels, and the memory kinds of
        memcpys; without those, no copy with Async in its name is one that keeps the host waiting.

        Args:
            profiler: When the profiler did its own work: shape (n, 2), sorted and disjoint.
            away: By cause when a rank did nothing that counts, likewise; the profiler comes first,
                and then each cause before those behind it.
        """
        table = trace.tables.get("api_calls")
        if table is None:
            names = ("start_ns", "end_ns", "global_tid", "name_id")
            table = Table({name: np.empty(0, dtype=np.int64) for name in names})
        kept = sane_times(table["start_ns"], table["end_ns"])
        calls = ThreadCalls.of(table["start_ns"], table["end_ns"], table["global_tid"], kept)
        names_used, code = distinct_codes(table["name_id"])
        texts = [trace.strings.get(key, "") for key in names_used.tolist()]
        causes = np.array([call_cause(text) for text in texts], dtype=np.int8)
        classes = np.array([classify_api(text) for text in texts], dtype=object)
        code = code[calls.row]
        cause = causes[code]
        cause[_staged(trace, calls, (classes == "memcpy")[code])] = call_cause("cudaMemcpy")
        cause[_slow_first_launches(trace, calls, (classes == "launch")[code])] = MODULE_LOAD
        apart, taken = dict[int, IntArray](), profiler
        for reason, spans in away.items():
            apart[reason] = subtract_intervals(spans, taken)
            taken = merged_unions([taken, apart[reason]])
        driver = _driver_work(_driver_times(trace), taken, calls)
        error_ns = early_starts(trace.unfiltered["kernels"], table).usual_ns
        is_graph = (classes == "graph_launch")[code]
        return cls(calls, cause, is_graph, profiler, apart, driver, error_ns)

    @cached_property
    def cause_ns(self) -> IntArray:
        """Time of each cause in the calls before each block: shape (causes, blocks + 1), ns."""
        shape = len(CAUSE_NAMES), self.cause.size // CALLS_BLOCK + 2
        sums = np.zeros(shape, dtype=np.int64)
        block = np.arange(self.cause.size) // CALLS_BLOCK + 1
        np.add.at(sums, (self.cause, block), self.calls.end_ns - self.calls.start_ns)
        return sums.cumsum(axis=1)

    def spans(self, thread: int, *, blocking: bool) -> tuple[IntArray, IntArray]:
        """Return when a thread (its code) was in a call, or a blocking one, and the causes."""
        if (thread, blocking) not in self._spans:
            selected = slice(self.calls.bounds[thread], self.calls.bounds[thread + 1])
            starts, ends = self.calls.start_ns[selected], self.calls.end_ns[selected]
            cause = self.cause[selected].astype(np.int64)
            keep = ends > starts
            if blocking:
                keep &= _IS_BLOCKING[cause]
            spans = np.column_stack((starts[keep], ends[keep]))
            self._spans[thread, blocking] = spans, cause[keep]
        return self._spans[thread, blocking]


def _staged(trace: RankTrace, calls: ThreadCalls, copying: npt.NDArray[np.bool_]) -> IntArray:
    """Return the places of calls that copy from or to pageable host memory, by their operations.

    The host copies the bytes to a pinned buffer or out of it inside the call, Async or not.
    """
    copies = trace.unfiltered.get("memcpys")
    if copies is None or "source_memory_kind" not in copies or not copying.any():
        return np.empty(0, dtype=np.int64)
    pageable = (copies["copy_kind"] == HOST_TO_DEVICE) & (copies["source_memory_kind"] == PAGEABLE)
    pageable |= (copies["copy_kind"] == DEVICE_TO_HOST) & (copies["target_memory_kind"] == PAGEABLE)
    row = copies["launch_row"][pageable & (copies["launch_row"] >= 0)]
    place = calls.place[row]
    return place[(place >= 0) & copying[place]]


def _slow_first_launches(
    trace: RankTrace, calls: ThreadCalls, launching: npt.NDArray[np.bool_]
) -> IntArray:
    """Return the places of launches in which the driver loads a kernel's code.

    Each is the first of its kernel in the capture, and far slower than a launch usually is. A
    capture that begins later than its process holds first launches that are none: they are fast.
    """
    length = calls.end_ns - calls.start_ns
    slow = launching & (length >= SLOW_FIRST_LAUNCH_NS)
    if not slow.any():
        return np.empty(0, dtype=np.int64)
    slow &= length >= SLOW_FIRST_LAUNCH_TIMES * np.median(length[launching])
    kernels = trace.unfiltered["kernels"]
    _, name = distinct_codes(kernels["demangled_name_id"])
    place = np.where(kernels["launch_row"] >= 0, calls.place[kernels["launch_row"]], -1)
    slow_rows = np.flatnonzero((place >= 0) & slow[place])
    asked = np.zeros(int(name.max(initial=-1)) + 1, dtype=bool)
    asked[name[slow_rows]] = True
    rows = np.flatnonzero(asked[name] & (place >= 0))
    first_ns = np.full(asked.size, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, name[rows], calls.start_ns[place[rows]])
    return place[slow_rows[calls.start_ns[place[slow_rows]] == first_ns[name[slow_rows]]]]


def _driver_times(trace: RankTrace) -> dict[tuple[int, int], list[IntArray]]:
    times_of: dict[tuple[int, int], list[IntArray]] = {}
    for owner, label, rows in overheads(trace):
        if owner == APPLICATION and (cause := _driver_cause(label)) is not None:
            times = np.column_stack((rows["start_ns"], rows["end_ns"]))
            for tid in distinct(rows["global_tid"]).tolist():
                times_of.setdefault((cause, tid), []).append(times[rows["global_tid"] == tid])
    return times_of


def _driver_cause(kind: str) -> int | None:
    if kind in COLD_START_KINDS:
        return MODULE_LOAD
    return BACK_PRESSURE if kind == "command buffer full" else None


def _driver_work(
    times_of: dict[tuple[int, int], list[IntArray]], others: IntArray, calls: ThreadCalls
) -> tuple[DriverWork, ...]:
    """Make the spans of each thread disjoint: from some others, and between causes."""
    taken: dict[int, IntArray] = {}
    work = []
    for (cause, tid), parts in sorted(times_of.items()):
        if (code := calls.code(tid)) < 0:
            continue  # a thread without a call launches nothing
        before = taken.get(code, others)
        spans = subtract_intervals(union_intervals(*np.concatenate(parts).T), before)
        taken[code] = union_intervals(*np.concatenate((before, spans)).T)
        if len(spans):
            work.append(DriverWork(cause, code, spans))
    return tuple(work)
