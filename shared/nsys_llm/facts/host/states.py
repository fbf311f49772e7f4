"""What threads did while a GPU was exposed to them, instant by instant. Pure numpy.

Exposed it is in each gap whose next operation was launched in it: from its begin until the call
that launched returns, on the thread that makes this call; without the time in which a server had no
request. Each nanosecond has the first state that applies: in a CUDA call, in a call of the C
library, off a core, running on one, unknown. It is unknown before the first recorded switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.device.host_timeline import HostTimeline, ThreadCalls
from nsys_llm.facts.device.idle_split import situate
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.gaps import Gaps, Positions
from nsys_llm.numeric.grouping import (
    begins_group,
    distinct,
    distinct_codes,
    position_in_group,
    sorted_distinct,
    split_by_code,
)
from nsys_llm.numeric.intervals import IntArray, starts_inside
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.idle_causes import AWAY, HOST_NO_CUDA, PROFILER_OVERHEAD
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
STATES: Final = (*DOING, OS_CALL, CUDA_CALL)

#: The tables that tell what a thread does between its CUDA calls.
ACTIVITY: Final = ("thread_switches", "os_calls", "lock_waits")
#: Those that tell anything of it, also which software.
_HOST_RECORDS: Final = (*ACTIVITY, "cpu_samples")
#: The number of a thread in its globalTid.
THREAD_BITS: Final = 0xFFFFFF
_TIMES: Final = ("start_ns", "end_ns", "global_tid")
#: Code of ENUM_NSYS_EVENT_CLASS (3.7 to 3.30); 31 and 32 mark begin and end of the profiling.
_OS_CALL: Final = 27
#: A periodic sample; others are stacks of switches.
_PERIODIC: Final = 1

_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Exposed:
    """Stretches of one thread in which a GPU waited for it; shape (n,), sorted and disjoint.

    Attributes:
        thread: Code of the thread in the host's calls.
        start_ns: Begin, the profile's clock.
        other: Thread that launched the operation before, if it is another one; -1 otherwise.
    """

    thread: int
    global_tid: int
    start_ns: IntArray
    end_ns: IntArray
    other: IntArray

    def take(self, some: slice) -> Exposed:
        """Return some of them."""
        parts = (self.start_ns[some], self.end_ns[some], self.other[some])
        return Exposed(self.thread, self.global_tid, *parts)


def exposed_stretches(gaps: Gaps, launch_row: Positions, host: HostTimeline) -> list[Exposed]:
    """Return when a device was exposed to each thread that launched what ends a gap.

    Args:
        launch_row: Shape (operations,), row of the launching call in the table; -1 without one.
    """
    parts = [np.empty((4, 0), dtype=np.int64)]
    for block in blocks(len(gaps)):
        some = gaps.take(block)
        where = situate(some, launch_row, host)
        rows = np.flatnonzero((where.whole < 0) & (where.done_ns > some.start_ns))
        thread, ends = host.calls.thread[where.call[rows]], where.done_ns[rows]
        parts.append(np.stack((thread, some.start_ns[rows], ends, where.other[rows])))
    thread, *columns = np.concatenate(parts, axis=1)
    threads, code = distinct_codes(thread)
    return [
        Exposed(of, int(host.calls.threads[of]), *(column[rows] for column in columns))
        for of, rows in zip(threads.tolist(), split_by_code(code, threads.size), strict=True)
    ]


def pieces_of(exposed: Exposed, edges: IntArray, host: HostTimeline) -> tuple[IntArray, ...]:
    """Cut stretches where a call begins or ends, where their cause changes, and at some instants.

    Causes are those of `idle_split`, which sums the same time up by gap.

    Returns:
        Begin and end of each piece, its cause, and the place of the outermost call that the thread
        was in, -1 outside of any; shape (pieces,) each.
    """
    stretches = np.column_stack((exposed.start_ns, exposed.end_ns))
    layers = [(work.cause, work.spans) for work in host.driver if work.thread == exposed.thread]
    layers += [*host.away.items(), (PROFILER_OVERHEAD, host.profiler)]
    layers = [(cause, _near(spans, stretches)) for cause, spans in layers]
    before = [code for code in distinct(exposed.other).tolist() if code >= 0]
    others = {code: host.spans(code, blocking=True) for code in before}
    handed = (_near(spans, stretches) for spans, _ in others.values())
    changes = (spans.reshape(-1) for spans in (*(spans for _, spans in layers), *handed))
    every = np.concatenate((edges, *_call_edges(exposed, host), *changes))
    at_ns = sorted_distinct(np.append(exposed.start_ns, every[starts_inside(every, stretches)]))
    owner = np.searchsorted(exposed.start_ns, at_ns, side="right") - 1
    ends = np.minimum(np.append(at_ns[1:], exposed.end_ns[-1]), exposed.end_ns[owner])
    call = host.calls.open_at(exposed.thread, at_ns)
    cause = np.where(call >= 0, host.cause[call], HOST_NO_CUDA).astype(np.int64)
    for code, (spans, causes) in others.items():
        rows = np.flatnonzero((call < 0) & (exposed.other[owner] == code))
        rows = rows[starts_inside(at_ns[rows], spans)]
        cause[rows] = causes[np.searchsorted(spans[:, 0], at_ns[rows], side="right") - 1]
    for code, spans in layers:
        cause[starts_inside(at_ns, spans)] = code
    kept = ~np.isin(cause, AWAY)
    return at_ns[kept], ends[kept], cause[kept], call[kept]


def _call_edges(exposed: Exposed, host: HostTimeline) -> tuple[IntArray, IntArray]:
    """Return begin and end of the calls that reach into stretches, far fewer; some twice."""
    rows = slice(*host.calls.bounds[exposed.thread : exposed.thread + 2].tolist())
    starts, ends = host.calls.start_ns[rows], host.calls.end_ns[rows]
    first = np.searchsorted(ends, exposed.start_ns, side="right")
    calls_n = np.maximum(np.searchsorted(starts, exposed.end_ns, side="left") - first, 0)
    owner = np.repeat(np.arange(first.size), calls_n)
    place = first[owner] + position_in_group(owner)
    return starts[place], ends[place]


def _near(spans: IntArray, stretches: IntArray) -> IntArray:
    """Return those of sorted, disjoint spans that reach into the time of stretches."""
    first = np.searchsorted(spans[:, 1], stretches[0, 0], side="right")
    return spans[first : np.searchsorted(spans[:, 0], stretches[-1, 1], side="left")]


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
        self._moves: dict[int, tuple[IntArray, _Bools]] = {}

    def moves(self, thread: int) -> tuple[IntArray, _Bools]:
        """Return when a thread went onto a core or left it, and whether it ran.

        Shape (n,), ascending; and (n + 1,), first what it must have done before, though it is not
        recorded. After the last one it did what that says. A thread without switches may have run.
        """
        if thread not in self._moves:
            at_ns, rows = _of_thread(self._switches, thread)
            # Leaving one core and going onto another may bear the same time: it is on one then.
            moves = np.sort(2 * at_ns + (self._switches["goes_on"][rows] != 0), kind="stable")
            at_ns, runs = moves >> 1, moves % 2 != 0
            before = ~runs[:1] if runs.size else [True]
            last = begins_group(at_ns[::-1])[::-1]
            at_ns, runs = at_ns[last], runs[last]
            changes = begins_group(runs)
            self._moves[thread] = at_ns[changes], np.append(before, runs[changes])
        return self._moves[thread]

    def on_core_ns(self, thread: int, start_ns: int, end_ns: int) -> int | None:
        """Return how much of a stretch a thread ran; None if it has no switches."""
        at_ns, runs = self.moves(thread)
        if not at_ns.size:
            return None
        low, high = np.searchsorted(at_ns, (start_ns, end_ns)).tolist()
        edges = np.concatenate(([start_ns], at_ns[low:high], [end_ns]))
        return int(np.diff(edges)[runs[low : high + 1]].sum())

    def edges_ns(self, thread: int) -> IntArray:
        """Return when a thread may have changed what it did, ascending."""
        calls, code = self.os_calls[0], self.os_calls[0].code(thread)
        rows = slice(0, 0) if code < 0 else slice(*calls.bounds[code : code + 2].tolist())
        edges = (calls.start_ns[rows], calls.end_ns[rows], self.moves(thread)[0])
        return np.sort(np.concatenate(edges), kind="stable")

    def doing(self, thread: int, at_ns: IntArray) -> tuple[IntArray, _Bools]:
        """Return what a thread did at some instants, and whether it is known to have run.

        Positions in `DOING`, or behind it of a call of the C library, the outermost, by its
        function in `os_calls`.
        """
        calls, _, name = self.os_calls
        moves_ns, runs = self.moves(thread)
        move = np.searchsorted(moves_ns, at_ns, side="right")
        on_core = (move > 0) & runs[move]
        doing = np.where(move > 0, 1 + on_core, 0)
        if (code := calls.code(thread)) >= 0:
            call = calls.open_at(code, at_ns)
            doing = np.where(call >= 0, len(DOING) + name[calls.row[call]], doing)
        return doing, on_core

    def samples(self, thread: int) -> tuple[IntArray, IntArray]:
        """Return the instants of a thread's periodic samples, ascending, and their rows."""
        at_ns, rows = _of_thread(self._samples, thread)
        periodic = self._samples["cycles"][rows] == _PERIODIC
        return at_ns[periodic], rows[periodic]

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
        waits = trace.tables.get("lock_waits", Table.empty((*_TIMES, "event_type")))
        waits = waits.take(waits["event_type"] == PUSH_POP)
        name = np.append(name, np.full(len(waits), len(names)))
        starts, ends, tid = (np.append(calls[column], waits[column]) for column in _TIMES)
        lines = ThreadCalls.of(starts, ends, tid, sane_times(starts, ends))
        return lines, (*names, INTERPRETER_LOCK), name

    def period_ns(self, samples: Mapping[int, IntArray]) -> int | None:
        """Median distance of two samples of a thread between which it did not leave its core.

        Args:
            samples: Instants by thread, ascending.
        """
        distances = [np.empty(0, dtype=np.int64)]
        for thread, at_ns in samples.items():
            moves_ns, runs = self.moves(thread)
            move, apart = np.searchsorted(moves_ns, at_ns, side="right"), np.diff(at_ns)
            distances.append(apart[(move[1:] == move[:-1]) & runs[move[1:]] & (apart > 0)])
        every = np.concatenate(distances)
        return lower_median(every) if every.size else None


def _of_thread(table: Table, thread: int) -> tuple[IntArray, IntArray]:
    """Return the instants of a thread's rows, ascending, and the rows."""
    rows = np.flatnonzero(table["global_tid"] == thread)
    at_ns = table["start_ns"][rows]
    order = np.argsort(at_ns, kind="stable")  # which sees that they are sorted already
    order = order[sane_instants(at_ns[order])]
    return at_ns[order], rows[order]


@dataclass(frozen=True)
class StatePieces:
    """Parts of stretches of one thread, each in a single state; shape (n,), sorted.

    Attributes:
        detail: State and function as one number, see `ThreadStates`.
        doing: The same without CUDA calls: what it did in them.
        runs: Whether it is known to have been on a core.
    """

    start_ns: IntArray
    end_ns: IntArray
    cause: IntArray
    detail: IntArray
    doing: IntArray
    runs: _Bools


class ThreadStates:
    """What threads of one rank did.

    Attributes:
        functions: Of each detail; "" of those in `DOING`, then of the C library, then of CUDA.
        states: Shape (details,), position of the state of each detail in `STATES`.
    """

    def __init__(self, trace: RankTrace, host: HostTimeline, records: HostRecords) -> None:
        self.host, self.records = host, records
        ids = trace.tables.get("api_calls", Table.empty(("name_id",)))["name_id"]
        names, name = coded_names(ids, trace.strings, strip_api_version)
        os_names = self.records.os_calls[1]
        self.functions = (*("" for _ in DOING), *os_names, *names)
        self._of_call = len(DOING) + len(os_names) + name
        sizes = [*(1 for _ in DOING), len(os_names), len(names)]
        self.states = np.repeat(np.arange(len(STATES)), sizes)

    def state(self, detail: int) -> tuple[str, str | None]:
        """Return the state and the function of a detail."""
        return STATES[self.states[detail]], self.functions[detail] or None

    def in_gaps(self, gaps: Gaps, launch_row: Positions) -> Iterator[tuple[int, StatePieces]]:
        """Yield the number of each thread that a device waited for in gaps, and what it did."""
        for exposed in exposed_stretches(gaps, launch_row, self.host):
            edges = self.records.edges_ns(exposed.global_tid)
            yield exposed.global_tid & THREAD_BITS, self.pieces(exposed, edges)

    def pieces(self, exposed: Exposed, edges: IntArray) -> StatePieces:
        """Cut stretches, at least one, where the cause changes, and at edges with the records'."""
        at_ns, ends, cause, call = pieces_of(exposed, edges, self.host)
        doing, runs = self.records.doing(exposed.global_tid, at_ns)
        detail = np.where(call >= 0, self._of_call[self.host.calls.row[call]], doing)
        return StatePieces(at_ns, ends, cause, detail, doing, runs)
