"""What the host of one rank did, as the causes of idle time need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.device.profiler_time import overheads
from nsys_llm.facts.device.thread_calls import ThreadCalls
from nsys_llm.numeric.grouping import distinct, distinct_codes
from nsys_llm.numeric.intervals import (
    IntArray,
    merged_unions,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import APPLICATION, COLD_START_KINDS, classify_api
from nsys_llm.taxonomy.cuda_codes import DEVICE_TO_HOST, HOST_TO_DEVICE, PAGEABLE
from nsys_llm.taxonomy.idle_causes import (
    BACK_PRESSURE,
    BLOCKING,
    CAUSE_NAMES,
    MODULE_LOAD,
    NO_WORK,
    NOT_RECORDED,
    OTHER_PROCESS,
    SLOW_FIRST_LAUNCH_NS,
    SLOW_FIRST_LAUNCH_TIMES,
    START_UP,
    call_cause,
)
from nsys_llm.trace.attribution import early_starts
from nsys_llm.trace.rank_trace import RankTrace, sane_times

#: Calls that are summed up together, for gaps that hold many.
CALLS_BLOCK: Final = 64
_NO_SPANS: Final = np.empty((0, 2), dtype=np.int64)
_IS_BLOCKING: Final = np.isin(np.arange(len(CAUSE_NAMES)), BLOCKING)


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
        graph_launch: Shape (calls,), bool.
        profiler: When the profiler did its own work in this process: shape (n, 2), disjoint.
        not_recorded: When work may have run that left no row: likewise, disjoint from `profiler`.
        no_work: When no request was in the server: likewise, disjoint from both.
        other_process: When another process ran on the GPU: likewise, disjoint from all.
        start_up: When the program started up: likewise, disjoint from all of these.
        driver: What the driver did, none of it in these.
        clock_error_ns: By how much the clocks of host and GPU disagree at least, see
            `nsys_llm.trace.attribution`; 0 where nothing shows it.
    """

    calls: ThreadCalls
    cause: npt.NDArray[np.int8]
    graph_launch: npt.NDArray[np.bool_]
    profiler: IntArray
    not_recorded: IntArray
    no_work: IntArray
    other_process: IntArray
    start_up: IntArray
    driver: tuple[DriverWork, ...]
    clock_error_ns: int = 0
    _spans: dict[tuple[int, bool], tuple[IntArray, IntArray]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        trace: RankTrace,
        profiler: IntArray,
        no_work: IntArray,
        not_recorded: IntArray = _NO_SPANS,
        other_process: IntArray = _NO_SPANS,
        start_up: IntArray = _NO_SPANS,
    ) -> HostTimeline:
        """Return the host of one rank; without API calls, one without threads.

        It looks at api_calls, both tables of overheads, names of kernels, and the memory kinds of
        memcpys; without those, no copy with Async in its name is one that keeps the host waiting.

        Args:
            profiler: When the profiler did its own work: shape (n, 2), sorted and disjoint.
            no_work: When a server had no request, likewise; it comes after these.
            not_recorded: When work may have run that left no row, likewise; the profiler comes
                first.
            other_process: When another process ran on the GPU, likewise; it comes after that.
            start_up: When the program started up, likewise; it comes last.
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
        not_recorded = subtract_intervals(not_recorded, profiler)
        taken = merged_unions([profiler, not_recorded])
        other_process = subtract_intervals(other_process, taken)
        taken = merged_unions([taken, other_process])
        no_work = subtract_intervals(no_work, taken)
        taken = merged_unions([taken, no_work])
        start_up = subtract_intervals(start_up, taken)
        taken = merged_unions([taken, start_up])
        driver = _driver_work(_driver_times(trace), taken, calls)
        error_ns = early_starts(trace.unfiltered["kernels"], table).usual_ns
        is_graph = (classes == "graph_launch")[code]
        away = not_recorded, no_work, other_process, start_up
        return cls(calls, cause, is_graph, profiler, *away, driver, error_ns)

    @property
    def away(self) -> Mapping[int, IntArray]:
        """By cause when nobody knows of idle time, or nothing was to do: disjoint."""
        return {
            NO_WORK: self.no_work,
            START_UP: self.start_up,
            OTHER_PROCESS: self.other_process,
            NOT_RECORDED: self.not_recorded,
        }

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
