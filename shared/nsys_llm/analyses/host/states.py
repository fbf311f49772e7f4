"""What threads did while a GPU was exposed to them, instant by instant. Pure numpy.

Each nanosecond has the first state that applies: in a CUDA call, in a call of the C library, off a
core, running on one, unknown. It is unknown before the first recorded switch of a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.device.thread_calls import ThreadCalls
from nsys_llm.analyses.host.exposed import Exposed, exposed_stretches, near, pieces_of, place_inside
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.gaps import Gaps, Positions
from nsys_llm.numeric.grouping import distinct_codes, split_by_code
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.host_part import (
    CUDA_CALL,
    INTERPRETER_LOCK,
    OFF_CORE,
    OS_CALL,
    RUNNING,
    UNKNOWN,
)
from nsys_llm.trace.ranges import PUSH_POP
from nsys_llm.trace.rank_trace import RankTrace, sane_instants, sane_times

#: What a thread does in no call.
DOING: Final = (UNKNOWN, OFF_CORE, RUNNING)
STATES: Final = (CUDA_CALL, OS_CALL, OFF_CORE, RUNNING, UNKNOWN)

#: The tables that tell what a thread does between its CUDA calls.
ACTIVITY: Final = ("thread_switches", "os_calls")
#: Those that tell anything of it, also which software.
_HOST_RECORDS: Final = (*ACTIVITY, "cpu_samples")
_NO_EDGES: Final = np.empty(0, dtype=np.int64)
#: The number of a thread in its globalTid.
THREAD_BITS: Final = 0xFFFFFF
_TIMES: Final = ("start_ns", "end_ns", "global_tid")
#: Code of ENUM_NSYS_EVENT_CLASS (3.7 to 3.30); 31 and 32 mark begin and end of the profiling.
_OS_CALL: Final = 27
#: A periodic sample; others are stacks of switches.
_PERIODIC: Final = 1
#: Python's wait for its lock, as `--trace=python-gil` writes it.
_LOCK_RANGE: Final = "Waiting for GIL"
#: The first switch of a thread without any.
NEVER_NS: Final = int(np.iinfo(np.int64).max)


def has_host_records(trace: RankTrace, tables: Sequence[str] = _HOST_RECORDS) -> bool:
    """Return whether anything is recorded of threads beside CUDA calls, in any of some tables."""
    return any(len(trace.tables.get(name, ())) for name in tables)


class HostRecords:
    """What one rank's profile records of its threads (globalTid) beside CUDA calls."""

    def __init__(self, trace: RankTrace) -> None:
        self._trace = trace
        empty = Table.empty(("start_ns", "global_tid", "goes_on", "cycles"))
        self._switches = trace.tables.get("thread_switches", empty)
        self._samples = trace.tables.get("cpu_samples", empty)
        self._switches_of = _by_thread(self._switches)
        self._on_core: dict[int, IntArray] = {}

    @cached_property
    def _samples_of(self) -> dict[int, IntArray]:
        return _by_thread(self._samples)

    def known_from_ns(self, thread: int) -> int:
        """Return the first switch of a thread; far beyond everything without one."""
        rows = self._switches_of.get(thread)
        return NEVER_NS if rows is None else int(self._switches["start_ns"][rows].min())

    def on_core(self, thread: int) -> IntArray:
        """Return when a thread ran, see `spans_on_core`; nothing of one without switches."""
        if (rows := self._switches_of.get(thread)) is None:
            return np.empty((0, 2), dtype=np.int64)
        if thread not in self._on_core:
            at_ns, goes_on = self._switches["start_ns"][rows], self._switches["goes_on"][rows]
            self._on_core[thread] = spans_on_core(at_ns, goes_on)
        return self._on_core[thread]

    def on_core_ns(self, thread: int, start_ns: int, end_ns: int) -> int | None:
        """Return how much of a stretch a thread ran; None if it has no switches."""
        if thread not in self._switches_of:
            return None
        at_ns = np.array([start_ns, end_ns])
        return int(clipped_lengths(at_ns[:1], at_ns[1:], self.on_core(thread))[0])

    def edges_ns(self, thread: int) -> IntArray:
        """Return when a thread may have changed what it did, in no order."""
        known_from_ns = self.known_from_ns(thread)
        known = [known_from_ns][: known_from_ns != NEVER_NS]
        spans = (self.calls(thread)[0], self.on_core(thread))
        every = np.concatenate([*(times.reshape(-1) for times in spans), known]).astype(np.int64)
        return every[sane_instants(every)]

    def doing(self, thread: int, at_ns: IntArray) -> IntArray:
        """Return what a thread did at some instants: positions in `DOING`, or behind it of a call.

        Calls are those of the C library, by their position in `os_calls`.
        """
        os_ns, os_name = self.calls(thread)
        place = place_inside(at_ns, os_ns)
        runs = place_inside(at_ns, self.on_core(thread)) >= 0
        free = np.where(at_ns >= self.known_from_ns(thread), np.where(runs, 2, 1), 0)
        return np.where(place >= 0, len(DOING) + np.append(os_name, 0)[place], free)

    def samples(self, thread: int) -> tuple[IntArray, IntArray]:
        """Return the instants of a thread's periodic samples, ascending, and their rows."""
        rows = self._samples_of.get(thread, np.empty(0, dtype=np.int64))
        at_ns = self._samples["start_ns"][rows]
        if (at_ns[1:] >= at_ns[:-1]).all():
            return at_ns, rows
        order = np.argsort(at_ns, kind="stable")
        return at_ns[order], rows[order]

    def calls(self, thread: int) -> tuple[IntArray, IntArray]:
        """Return when a thread was in a call of the C library, the outermost, and in which.

        Shape (n, 2), disjoint; and (n,), position of the function in those of `os_calls`.
        """
        calls, _, name = self.os_calls
        code = int(np.searchsorted(calls.threads, thread))
        if code == calls.threads.size or calls.threads[code] != thread:
            return np.empty((0, 2), dtype=np.int64), name[:0]
        low, high = calls.bounds[code : code + 2].tolist()
        here = low + np.flatnonzero(calls.end_ns[low:high] > calls.start_ns[low:high])
        return np.column_stack((calls.start_ns[here], calls.end_ns[here])), name[calls.row[here]]

    @cached_property
    def os_calls(self) -> tuple[ThreadCalls, tuple[str, ...], IntArray]:
        """Calls of the C library, all functions, and that of each row.

        A wait for Python's interpreter lock is a call of its own: a range `Waiting for GIL`, or a
        call whose stack holds CPython's `take_gil`.
        """
        trace = self._trace
        calls = trace.tables.get("os_calls", Table.empty((*_TIMES, "name_id")))
        if "event_class" in calls:
            calls = calls.take(calls["event_class"] == _OS_CALL)
        names, name = coded_names(calls["name_id"], trace.strings)
        if len(frames := trace.tables.get("os_call_frames", Table({}))):
            takes = [key for key, text in trace.strings.items() if text.startswith("take_gil")]
            stacks = frames["id"][np.isin(frames["symbol_id"], takes)]
            name = np.where(np.isin(calls["callchain_id"], stacks), len(names), name)
        columns = (*_TIMES, "event_type", "text", "text_id")
        events = trace.tables.get("nvtx_events", Table.empty(columns))
        ids = [key for key, text in trace.strings.items() if text == _LOCK_RANGE]
        is_lock = np.isin(events["text_id"], ids) | (events["text"].astype(object) == _LOCK_RANGE)
        rows = np.flatnonzero(is_lock & (events["event_type"] == PUSH_POP))
        name = np.append(name, np.full(rows.size, len(names)))
        starts, ends, tid = (np.append(calls[column], events[column][rows]) for column in _TIMES)
        lines = ThreadCalls.of(starts, ends, tid, sane_times(starts, ends))
        return lines, (*names, INTERPRETER_LOCK), name

    @cached_property
    def period_ns(self) -> int | None:
        """Median distance of two samples of a thread between which it did not leave its core."""
        distances = [np.empty(0, dtype=np.int64)]
        for thread in self._samples_of:
            at_ns, _ = self.samples(thread)
            apart = np.diff(at_ns)
            if thread in self._switches_of:
                place = place_inside(at_ns, self.on_core(thread))
                apart = apart[(place[1:] == place[:-1]) & (place[1:] >= 0)]
            distances.append(apart[apart > 0])
        every = np.concatenate(distances)
        return lower_median(every) if every.size else None


def _by_thread(table: Table) -> dict[int, IntArray]:
    """Return the rows of each thread; of samples, the periodic ones."""
    kept = sane_instants(table["start_ns"])
    rows = np.flatnonzero(kept & (table["cycles"] == _PERIODIC) if "cycles" in table else kept)
    threads, code = distinct_codes(table["global_tid"][rows])
    parts = split_by_code(code, threads.size)
    return {thread: rows[part] for thread, part in zip(threads.tolist(), parts, strict=True)}


@dataclass(frozen=True)
class StatePieces:
    """Parts of stretches of one thread, each in a single state; shape (n,), sorted.

    Attributes:
        start_ns: Begin.
        end_ns: Its end, later.
        cause: Code of the cause of idle time.
        detail: State and function as one number, see `ThreadStates`.
        os_name: Function of the C library that it was in, whatever the state; -1 for none.
        runs: Whether it is known to have been on a core.
    """

    start_ns: IntArray
    end_ns: IntArray
    cause: IntArray
    detail: IntArray
    os_name: IntArray
    runs: npt.NDArray[np.bool_]


class ThreadStates:
    """What threads of one rank did.

    A detail is a position in `functions`, or behind these: off core, running, unknown.

    Attributes:
        functions: Of the CUDA library, then of the C library.
        states: Shape (details,), position of the state of each detail in `STATES`.
        records: Beside CUDA calls.
        host: The CUDA calls.
    """

    def __init__(self, trace: RankTrace, host: HostTimeline) -> None:
        self.host, self.records = host, HostRecords(trace)
        names: Sequence[str] = ()
        self._api = np.empty(0, dtype=np.int64)
        if host.calls.row.size:
            ids = trace.tables["api_calls"]["name_id"]
            names, self._api = coded_names(ids, trace.strings, strip_api_version)
        os_names = self.records.os_calls[1]
        self.functions, self._apis_n = (*names, *os_names), len(names)
        self.states = np.repeat(np.arange(len(STATES)), [len(names), len(os_names), 1, 1, 1])

    def state(self, detail: int) -> tuple[str, str | None]:
        """Return the state and the function of a detail."""
        function = self.functions[detail] if detail < len(self.functions) else None
        return STATES[self.states[detail]], function

    def thread(self, exposed: Exposed) -> int:
        """Return the globalTid of the thread of some stretches."""
        return int(self.host.calls.threads[exposed.thread])

    def in_gaps(
        self, gaps: Gaps, launch_row: Positions, edges: IntArray = _NO_EDGES
    ) -> Iterator[tuple[int, StatePieces]]:
        """Yield the number of each thread that a device waited for in gaps, and what it did."""
        for exposed in exposed_stretches(gaps, launch_row, self.host):
            yield self.thread(exposed) & THREAD_BITS, self.pieces(exposed, edges)

    def pieces(self, exposed: Exposed, edges: IntArray) -> StatePieces:
        """Cut stretches, at least one, where the state changes, and at some instants."""
        thread, reach = self.thread(exposed), (int(exposed.start_ns[0]), int(exposed.end_ns[-1]))
        os_ns, os_name = self.records.calls(thread)
        around = near(os_ns, *reach)
        os_ns, os_name = os_ns[around], os_name[around]
        on_core, known_from_ns = self.records.on_core(thread), self.records.known_from_ns(thread)
        on_core = on_core[near(on_core, *reach)]
        every = (edges, os_ns.reshape(-1), on_core.reshape(-1), np.array([known_from_ns]))
        at_ns, ends, cause, call = pieces_of(exposed, np.concatenate(every), self.host)
        known_yet = at_ns >= known_from_ns
        place, runs = place_inside(at_ns, os_ns), (place_inside(at_ns, on_core) >= 0) & known_yet
        name = np.where(place >= 0, self._apis_n + np.append(os_name, 0)[place], -1)
        free = np.where(runs, 1, np.where(known_yet, 0, 2))
        detail = np.where(name >= 0, name, len(self.functions) + free)
        if self._api.size:
            detail = np.where(call >= 0, self._api[self.host.calls.row[call]], detail)
        return StatePieces(at_ns, ends, cause, detail, name, runs)


def spans_on_core(at_ns: IntArray, goes_on: IntArray) -> IntArray:
    """Return when a thread ran: shape (n, 2), sorted and disjoint.

    Before its first switch and after its last one it did what these say.

    Args:
        at_ns: Shape (switches,), at least one, in any order.
        goes_on: Shape (switches,), not 0 where it goes onto a core, 0 where it leaves.
    """
    # Leaving one core and going onto another may bear the same time: it is on one then.
    order = np.lexsort((goes_on, at_ns))
    at_ns, runs = at_ns[order], goes_on[order] != 0
    bounds = np.iinfo(np.int64)
    edges = np.concatenate(([bounds.min // 4], at_ns, [bounds.max // 4]))
    running = np.concatenate(([not runs[0]], runs))
    return union_intervals(edges[:-1][running], edges[1:][running])
