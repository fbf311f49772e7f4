"""What threads did while a GPU was exposed to them: exact time by state. Pure numpy.

Each nanosecond has the first state that applies: in a CUDA call, in a call of the C library, off a
core, running on one, unknown. It is unknown before the first recorded switch of a thread.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.device.thread_calls import ThreadCalls
from nsys_llm.analyses.host.exposed import Exposed, KeyedSums, near, pieces_of, place_inside
from nsys_llm.analyses.host.places import PARTS, Places
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct_codes, split_by_code
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.host_part import (
    CUDA_CALL,
    OFF_CORE,
    OS_CALL,
    RUNNING,
    SAMPLED,
    UNKNOWN,
    HostState,
)
from nsys_llm.trace.rank_trace import RankTrace, sane_instants, sane_times

STATES: Final = (CUDA_CALL, OS_CALL, OFF_CORE, RUNNING, UNKNOWN)

_SAMPLED: Final = [STATES.index(state) for state in SAMPLED]
#: The tables that tell more of a thread than its CUDA calls.
_HOST_RECORDS: Final = ("thread_switches", "os_calls", "cpu_samples")
#: Code of ENUM_NSYS_EVENT_CLASS (3.7 to 3.30); 31 and 32 mark begin and end of the profiling.
_OS_CALL: Final = 27
#: A periodic sample; others are stacks of switches.
_PERIODIC: Final = 1
_THREAD_BITS: Final = 0xFFFFFF
_NEVER_NS: Final = int(np.iinfo(np.int64).max)


def has_host_records(trace: RankTrace) -> bool:
    """Return whether anything is recorded of threads beside CUDA calls."""
    return any(len(trace.tables.get(name, ())) for name in _HOST_RECORDS)


@dataclass(frozen=True)
class ThreadRecord:
    """What is recorded of one thread beside its CUDA calls.

    Attributes:
        os_ns: Shape (n, 2), when it was in a call of the C library, the outermost; disjoint.
        os_name: Shape (n,), code of the function.
        on_core_ns: Shape (m, 2), when it ran; before its first switch what that one implies.
        known_from_ns: That switch; far beyond everything without one.
        sample_ns: Shape (samples,), ascending.
        sample: Shape (samples,), rows in the table.
    """

    os_ns: IntArray
    os_name: IntArray
    on_core_ns: IntArray
    known_from_ns: int
    sample_ns: IntArray
    sample: IntArray

    @property
    def has_switches(self) -> bool:
        """Whether it is known when it ran."""
        return self.known_from_ns != _NEVER_NS


class HostRecords:
    """What one rank's profile records of its threads.

    Attributes:
        os_names: Functions of the C library, sorted.
        period_ns: Usual time between two samples of a thread that runs; None without samples.
    """

    def __init__(self, trace: RankTrace) -> None:
        calls = trace.tables.get("os_calls")
        calls = None if calls is None or not len(calls) else calls
        if calls is not None and "event_class" in calls:
            calls = calls.take(calls["event_class"] == _OS_CALL)
        self.os_names: tuple[str, ...] = ()
        self._os: ThreadCalls | None = None
        if calls is not None and len(calls):
            kept = sane_times(calls["start_ns"], calls["end_ns"])
            self._os = ThreadCalls.of(calls["start_ns"], calls["end_ns"], calls["global_tid"], kept)
            self.os_names, self._os_name = coded_names(calls["name_id"], trace.strings)
        self._switches = _by_thread(trace.tables.get("thread_switches"))
        self._samples = _by_thread(trace.tables.get("cpu_samples"), "cycles", _PERIODIC)
        self._known: dict[int, ThreadRecord] = {}

    def of(self, thread: int) -> ThreadRecord:
        """Return the record of a thread (globalTid)."""
        if thread not in self._known:
            self._known[thread] = self._of(thread)
        return self._known[thread]

    def on_core_ns(self, thread: int, start_ns: int, end_ns: int) -> int | None:
        """Return how much of a stretch a thread (globalTid) ran; None if it has no switches."""
        record, at_ns = self.of(thread), np.array([start_ns, end_ns])
        if not record.has_switches:
            return None
        return int(clipped_lengths(at_ns[:1], at_ns[1:], record.on_core_ns)[0])

    def _of(self, thread: int) -> ThreadRecord:
        os_ns, os_name = self._os_calls(thread)
        on_core, known_from_ns = np.empty((0, 2), dtype=np.int64), _NEVER_NS
        table, rows = self._switches
        if table is not None and thread in rows:
            at_ns, goes_on = table["start_ns"][rows[thread]], table["goes_on"][rows[thread]]
            known_from_ns = int(at_ns.min())
            on_core = spans_on_core(at_ns, goes_on)
        table, rows = self._samples
        sample = rows.get(thread, np.empty(0, dtype=np.int64))
        times = sample if table is None else table["start_ns"][sample]
        order = np.argsort(times, kind="stable")
        return ThreadRecord(os_ns, os_name, on_core, known_from_ns, times[order], sample[order])

    def _os_calls(self, thread: int) -> tuple[IntArray, IntArray]:
        none = np.empty((0, 2), dtype=np.int64)
        if self._os is None:
            return none, none[:, 0]
        code = int(np.searchsorted(self._os.threads, thread))
        if code == len(self._os.threads) or self._os.threads[code] != thread:
            return none, none[:, 0]
        some = slice(self._os.bounds[code], self._os.bounds[code + 1])
        spans = np.column_stack((self._os.start_ns[some], self._os.end_ns[some]))
        lasting = spans[:, 1] > spans[:, 0]
        return spans[lasting], self._os_name[self._os.row[some][lasting]]

    @cached_property
    def period_ns(self) -> int | None:
        """Median distance of two samples of a thread between which it did not leave its core."""
        distances = [np.empty(0, dtype=np.int64)]
        for thread in self._samples[1]:
            record = self.of(thread)
            apart = np.diff(record.sample_ns)
            if record.has_switches:
                place = place_inside(record.sample_ns, record.on_core_ns)
                apart = apart[(place[1:] == place[:-1]) & (place[1:] >= 0)]
            distances.append(apart[apart > 0])
        every = np.sort(np.concatenate(distances))
        return int(every[(every.size - 1) // 2]) if every.size else None


def _by_thread(
    table: Table | None, column: str | None = None, value: int = 0
) -> tuple[Table | None, dict[int, IntArray]]:
    """Return a table, and the rows of each thread: those with a time, and a value in a column."""
    if table is None or not len(table):
        return None, {}
    kept = sane_instants(table["start_ns"]) & (table["global_tid"] != NULL_INT)
    if column is not None:
        kept &= table[column] == value
    rows = np.flatnonzero(kept)
    threads, code = distinct_codes(table["global_tid"][rows])
    parts = split_by_code(code, threads.size)
    return table, {thread: rows[part] for thread, part in zip(threads.tolist(), parts, strict=True)}


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
        records: Beside CUDA calls.
        host: The CUDA calls.
    """

    def __init__(self, trace: RankTrace, host: HostTimeline) -> None:
        self.host, self.records = host, HostRecords(trace)
        names: Sequence[str] = ()
        self._api = np.empty(0, dtype=np.int64)
        if host.calls.row.size:
            ids = trace.tables["api_calls"]["name_id"]
            names, code = coded_names(ids, trace.strings, strip_api_version)
            self._api = code[host.calls.row]
        self.functions = (*names, *self.records.os_names)
        self._apis_n = len(names)
        self.details_n = len(self.functions) + 3

    def state(self, detail: int) -> tuple[str, str | None]:
        """Return the state and the function of a detail."""
        bounds = (self._apis_n, *range(len(self.functions), self.details_n))
        function = self.functions[detail] if detail < len(self.functions) else None
        return STATES[bisect(bounds, detail)], function

    def thread(self, exposed: Exposed) -> int:
        """Return the globalTid of the thread of some stretches."""
        return int(self.host.calls.threads[exposed.thread])

    def pieces(self, exposed: Exposed, edges: IntArray) -> StatePieces:
        """Cut stretches, at least one, where the state changes, and at some instants."""
        record = self.records.of(self.thread(exposed))
        low_ns, high_ns = int(exposed.start_ns[0]), int(exposed.end_ns[-1])
        around = near(record.os_ns, low_ns, high_ns)
        os_ns, os_name = record.os_ns[around], record.os_name[around]
        on_core = record.on_core_ns[near(record.on_core_ns, low_ns, high_ns)]
        known = np.array([record.known_from_ns])
        every = np.concatenate((edges, os_ns.reshape(-1), on_core.reshape(-1), known))
        at_ns, ends, cause, call = pieces_of(exposed, every, self.host)
        known_yet = at_ns >= record.known_from_ns
        place, runs = place_inside(at_ns, os_ns), (place_inside(at_ns, on_core) >= 0) & known_yet
        name = np.where(place >= 0, self._apis_n + np.append(os_name, 0)[place], -1)
        free = np.where(runs, 1, np.where(known_yet, 0, 2))
        detail = np.where(name >= 0, name, len(self.functions) + free)
        if self._api.size:
            detail = np.where(call >= 0, self._api[call], detail)
        return StatePieces(at_ns, ends, cause, detail, name, runs)


class HostStates:
    """Adds up what threads of one rank did in stretches of time."""

    def __init__(self, threads: ThreadStates, places: Places) -> None:
        self._threads, self._places = threads, places
        self._details_n, self._places_n = threads.details_n, len(places.names) * len(PARTS)
        states = [STATES.index(threads.state(code)[0]) for code in range(threads.details_n)]
        self._state = np.array(states, dtype=np.int64)

    def of(self, device_id: int, stretches: Sequence[Exposed]) -> tuple[list[HostState], IntArray]:
        """Return what threads did in the exposed time of a device, one entry a thread.

        Returns:
            Time by all that is told apart; and the periodic samples in CUDA calls and where a
            thread ran: shape (5, samples), globalTid, cause, place, state, row in the table.
        """
        states, samples = list[HostState](), [np.empty((5, 0), dtype=np.int64)]
        for exposed in stretches:
            thread, sums, waits = self._threads.thread(exposed), KeyedSums(2), KeyedSums(1)
            spans = np.column_stack((exposed.start_ns, exposed.end_ns))
            moved_ns, place = self._places.line(thread, spans)
            for block in exposed.blocks():
                low, high = np.searchsorted(moved_ns, (block.start_ns[0], block.end_ns[-1]))
                pieces = self._threads.pieces(block, moved_ns[low:high])
                at = np.searchsorted(moved_ns, pieces.start_ns, side="right") - 1
                group = pieces.cause * self._places_n + place[at]
                key, time_ns = (
                    group * self._details_n + pieces.detail,
                    pieces.end_ns - pieces.start_ns,
                )
                sums.add(key, time_ns, np.where(pieces.runs, time_ns, 0))
                # What a CUDA call waited in; of a call of the C library that is itself.
                held = np.flatnonzero((pieces.os_name >= 0) & (pieces.os_name != pieces.detail))
                waits.add(key[held] * self._details_n + pieces.os_name[held], time_ns[held])
                samples.append(self._samples(thread, pieces, group))
            states += self._rows(device_id, thread, sums, waits)
        return states, np.concatenate(samples, axis=1)

    def _samples(self, thread: int, pieces: StatePieces, group: IntArray) -> IntArray:
        record = self._threads.records.of(thread)
        if not group.size:
            return np.empty((5, 0), dtype=np.int64)
        low, high = np.searchsorted(record.sample_ns, (pieces.start_ns[0], pieces.end_ns[-1]))
        at_ns, row = record.sample_ns[low:high], record.sample[low:high]
        piece = np.searchsorted(pieces.start_ns, at_ns, side="right") - 1
        state = self._state[pieces.detail[piece]]
        kept = (at_ns < pieces.end_ns[piece]) & np.isin(state, _SAMPLED)
        cause, place = np.divmod(group[piece[kept]], self._places_n)
        return np.stack((np.full(place.size, thread), cause, place, state[kept], row[kept]))

    def _rows(
        self, device_id: int, thread: int, sums: KeyedSums, waits: KeyedSums
    ) -> Iterator[HostState]:
        """Yield the sums of a thread."""
        key, (time_ns, on_core_ns) = sums.total()
        pair, (waited_ns,) = waits.total()
        longest: dict[int, tuple[str, int]] = {}  # where most of a CUDA call was spent
        for at in np.lexsort((pair, -waited_ns)).tolist():
            of, name = divmod(int(pair[at]), self._details_n)
            longest.setdefault(of, (self._threads.functions[name], int(waited_ns[at])))
        has_switches = self._threads.records.of(thread).has_switches
        for row in np.flatnonzero(time_ns).tolist():
            group, detail = divmod(int(key[row]), self._details_n)
            cause, place = divmod(group, self._places_n)
            yield HostState(
                device_id,
                thread & _THREAD_BITS,
                CAUSE_NAMES[cause],
                *self._places.named(place),
                *self._threads.state(detail),
                int(time_ns[row]),
                int(on_core_ns[row]) if has_switches else None,
                *longest.get(int(key[row]), (None, 0)),
            )


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
