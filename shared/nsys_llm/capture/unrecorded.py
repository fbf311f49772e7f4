"""Work that left no row: launch calls of a process without an operation. Pure numpy.

Work is lost if it must have ended inside the capture: a stream runs its work in order, so it has
where a later call of its stream left a row, or where a wait for the stream, the context or the
device began after the call and returned. Of a process without any row a wait for an event counts
too, where two were recorded in between. What is not proven so may have run after the end.

An export does not say in which stream a call put its work if that left no row. It is taken for that
of the thread's last work of the kind; for the thread's next one where there is none before; else
any. Where a thread's work in another stream ends with calls that it made all along, those may be of
that one, which then needs a proof too.

Copies of no bytes and within the host, and empty graphs, leave no row either. So a copy is lost
only beside lost kernels and graphs, and a graph where none of the process leaves rows, where
several in a row do not, or beside lost kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.capture.launch_calls import (
    COPY,
    GRAPH,
    KERNEL,
    RECORDS_EVENT,
    WAITS,
    WAITS_ALL,
    WAITS_EVENT,
    WAITS_STREAM,
    WORK,
    LaunchCalls,
    Mask,
    call_bits,
)
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import IntArray, starts_inside, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.trace.rank_trace import RankTrace

#: So many launches of graphs in a row are no empty ones.
_ROW_OF_GRAPHS: Final = 3
#: A stream that is used as regularly as up to its last row may be used on; ours.
_REGULAR: Final = 4
#: Stream of which nothing is known, and the waits for all streams; others are 0 and more.
_ANY: Final = -1
_STREAM_BITS: Final = 32
_ALL_STREAMS: Final = (1 << _STREAM_BITS) - 1
_NEVER: Final = int(np.iinfo(np.int64).max)
_NO_SPANS: Final = np.empty((0, 2), dtype=np.int64)
_NO_ROWS: Final = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class LostWork:
    """The launch calls of one process that left no row, though they may have run.

    Attributes:
        lost: Shape (n, 2), by begin, not disjoint: when the call of each lost kernel and graph
            began, and when the work had certainly ended.
        spans: Shape (m, 2), their union: sorted and disjoint. Nobody knows whether a device was
            idle then.
        kernels_n: How many of the lost ones start a kernel; likewise graphs and copies.
        launches_n: All calls that start a kernel or graph, but captured and failed ones.
        late_n: Those of them without a row that may have run after the end of the capture.
        late_ns: When the first of those began; the largest number for none.
        copy_calls_n: All that copy or fill; of `copies_seen_n` an operation is recorded, and
            `copies_cut_n` others may have run after the end.
    """

    lost: IntArray
    spans: IntArray
    kernels_n: int = 0
    graphs_n: int = 0
    copies_n: int = 0
    launches_n: int = 0
    late_n: int = 0
    late_ns: int = _NEVER
    copy_calls_n: int = 0
    copies_seen_n: int = 0
    copies_cut_n: int = 0

    @property
    def lost_n(self) -> dict[str, int]:
        """How many are lost, by what they start; what there is none of is left out."""
        counts = {"kernel": self.kernels_n, "graph": self.graphs_n, "copy": self.copies_n}
        return {name: count for name, count in counts.items() if count}


NOTHING: Final = LostWork(_NO_SPANS, _NO_SPANS)


def unrecorded_of(rank: RankTrace) -> LostWork:
    """Return what a process lacks, whatever the filters leave of it."""
    calls, waits = rank.tables.get("api_calls"), rank.tables.get("synchronizations")
    return find_unrecorded(calls, rank.unfiltered, rank.strings, waits, rank.timeless)


def find_unrecorded(
    calls: Table | None,
    ops: Mapping[str, Table],
    strings: Mapping[int, str],
    waits: Table | None = None,
    timeless: IntArray = _NO_ROWS,
) -> LostWork:
    """Count the calls of one process that launch work and left no row, and tell when they ran.

    Args:
        calls: Its API calls; None where they were not traced.
        ops: Its operations by table, with the rows of the calls that launched them.
        waits: What CUPTI recorded of its waits, which tells their streams.
        timeless: Rows of calls whose operations are recorded, and left out for their times.
    """
    if calls is None or not len(calls):
        return NOTHING
    does, seen = call_bits(calls, strings), np.zeros(len(calls), dtype=bool)
    for op in ops.values():
        seen[op["launch_row"][op["launch_row"] >= 0]] = True
    seen[timeless] = True
    if any(map(len, ops.values())) and not seen.any():
        return NOTHING  # they do not say which call launched them
    works = (does & WORK) != 0
    # So are calls of whose number another call has a row, or that have none.
    missing, ids = np.flatnonzero(works & ~seen), calls["correlation_id"]
    if missing.size:
        seen[missing[(ids[missing] < 0) | np.isin(ids[missing], ids[seen])]] = True
    if not (works & ~seen).any():
        copies_n = int(np.count_nonzero(does & COPY))
        launches_n = int(np.count_nonzero(works)) - copies_n
        return LostWork(
            *(_NO_SPANS, _NO_SPANS),
            launches_n=launches_n,
            copy_calls_n=copies_n,
            copies_seen_n=copies_n,
        )
    lined_up = LaunchCalls.of(calls, does, seen)
    streams = _Streams.of(lined_up, calls, ops, waits)
    return _judged(lined_up, streams)


def _judged(calls: LaunchCalls, streams: _Streams) -> LostWork:
    ended_ns = np.full(len(calls), _NEVER, dtype=np.int64)
    missing = np.flatnonzero(calls.missing)
    ended_ns[missing] = streams.ended_ns(missing)
    proven = calls.missing & (ended_ns < _NEVER)
    kernels, graphs, copies = ((calls.does & bit) != 0 for bit in (KERNEL, GRAPH, COPY))
    lost = proven & kernels
    spans = union_intervals(calls.start_ns[lost], ended_ns[lost])
    lost_graphs = proven & graphs
    if (graphs & calls.seen).any():
        lost_graphs &= _in_rows(calls, graphs) | starts_inside(calls.start_ns, spans)
    lost |= lost_graphs
    spans = union_intervals(calls.start_ns[lost], ended_ns[lost])
    late = calls.missing & ~copies & ~proven
    counted = calls.missing | calls.seen
    order = np.argsort(calls.start_ns[lost], kind="stable")
    return LostWork(
        lost=np.column_stack((calls.start_ns[lost], ended_ns[lost]))[order],
        spans=spans,
        kernels_n=_count(lost & kernels),
        graphs_n=_count(lost_graphs),
        copies_n=_count(proven & copies & starts_inside(calls.start_ns, spans)),
        launches_n=_count(counted & (kernels | graphs)),
        late_n=_count(late),
        late_ns=int(calls.start_ns.min(where=late, initial=_NEVER)),
        copy_calls_n=_count(counted & copies),
        copies_seen_n=_count(calls.seen & copies),
        copies_cut_n=_count(calls.missing & copies & ~proven),
    )


def _count(rows: Mask) -> int:
    return int(np.count_nonzero(rows))


def _in_rows(calls: LaunchCalls, graphs: Mask) -> Mask:
    """Return the launches of graphs without a row that have enough others of these beside them."""
    place = np.flatnonzero(graphs)
    missing, thread = calls.missing[place], calls.thread[place]
    begins = np.ones(place.size, dtype=bool)
    begins[1:] = (missing[1:] != missing[:-1]) | (thread[1:] != thread[:-1])
    run = np.cumsum(begins) - 1
    long = np.bincount(run)[run] >= _ROW_OF_GRAPHS
    chosen = np.zeros(len(calls), dtype=bool)
    chosen[place[missing & long]] = True
    return chosen


@dataclass(frozen=True)
class _Proofs:
    """What shows that earlier work of a stream had ended: calls by start, and from when on."""

    call_ns: IntArray
    ended_ns: IntArray

    @classmethod
    def of(cls, call_ns: IntArray, ended_ns: IntArray) -> _Proofs:
        """Of equal calls any order; each is as good as the earliest of those after it."""
        if (call_ns[1:] < call_ns[:-1]).any():
            order = np.argsort(call_ns, kind="stable")
            call_ns, ended_ns = call_ns[order], ended_ns[order]
        return cls(call_ns, np.minimum.accumulate(ended_ns[::-1])[::-1])

    def after(self, call_ns: IntArray) -> IntArray:
        """Return from when on the work of calls had certainly ended; `_NEVER` for not known."""
        return np.append(self.ended_ns, _NEVER)[np.searchsorted(self.call_ns, call_ns, "right")]


@dataclass(frozen=True)
class _Streams:
    """In which stream each call put its work or waited, shape (calls,): a code, or `_ANY`."""

    calls: LaunchCalls
    stream: IntArray
    op_start_ns: IntArray
    waits_all: Mask

    @classmethod
    def of(
        cls, calls: LaunchCalls, table: Table, ops: Mapping[str, Table], waits: Table | None
    ) -> _Streams:
        known = np.full(len(table), _ANY, dtype=np.int64)
        begin_ns = np.full(len(table), _NEVER, dtype=np.int64)
        for op in ops.values():
            rows = np.flatnonzero(op["launch_row"] >= 0)
            launch = op["launch_row"][rows]
            known[launch] = _stream_of(op)[rows]
            np.minimum.at(begin_ns, launch, op["start_ns"][rows])
        known, begin_ns = known[calls.row], begin_ns[calls.row]
        waits_all = (calls.does & WAITS_ALL) != 0
        stream = np.where(calls.seen, known, _ANY)
        by_row = calls.seen.copy()
        syncs = ((calls.does & WAITS_STREAM) != 0) & ~calls.seen
        if waits is not None and len(waits) and syncs.any():
            told = _waited_for(waits, table["correlation_id"][calls.row[syncs]])
            stream[syncs], by_row[syncs] = told, told != _ANY
        stream = _supposed(calls, stream, by_row)
        return cls(calls, stream, begin_ns, waits_all)

    def ended_ns(self, missing: IntArray) -> IntArray:
        """Return from when on the work of some calls had certainly ended, shape (missing,)."""
        ended = np.full(missing.size, _NEVER, dtype=np.int64)
        own = self.stream[missing]
        for stream in distinct(own).tolist():
            some = own == stream
            ended[some] = self._ended_in(stream, missing[some])
        for thread, stream, after in self._others(missing):
            some = (self.calls.thread[missing] == thread) & (missing > after) & (own != stream)
            waited = self._waits(self.stream == stream).after(self.calls.start_ns[missing[some]])
            ended[some] = np.maximum(ended[some], waited)
        return ended

    def _ended_in(self, stream: int, places: IntArray) -> IntArray:
        if stream != _ANY:
            mine = self.stream == stream
            work = mine & self.calls.seen & ((self.calls.does & WORK) != 0)
            started = _Proofs.of(self.calls.start_ns[work], self.op_start_ns[work])
            starts = self.calls.start_ns[places]
            return np.minimum(started.after(starts), self._waits(mine).after(starts))
        ended = np.full(places.size, _NEVER, dtype=np.int64)
        threads = self.calls.thread[places]
        anybody = not self.calls.seen.any()
        for thread in distinct(threads).tolist():
            some, theirs = threads == thread, anybody | (self.calls.thread == thread)
            ended[some] = self._waits(theirs).after(self.calls.start_ns[places[some]])
        if anybody:
            ended = np.minimum(ended, self._event_waits().after(self.calls.start_ns[places]))
        return ended

    def _event_waits(self) -> _Proofs:
        """Return waits for events: each of one that was recorded before the last one was.

        Which event a call names is not in an export; hosts that run ahead wait for the last but
        one.
        """
        calls = self.calls
        waits = (calls.does & WAITS_EVENT) != 0
        recorded_ns = np.sort(calls.start_ns[(calls.does & RECORDS_EVENT) != 0])
        place = np.searchsorted(recorded_ns, calls.start_ns[waits]) - 2
        return _Proofs.of(recorded_ns[place[place >= 0]], calls.end_ns[waits][place >= 0])

    def _waits(self, chosen: Mask) -> _Proofs:
        """Return those of some waits for streams, and of all waits for more."""
        calls = self.calls
        rows = ((calls.does & WAITS) != 0) & (chosen | self.waits_all)
        # A copy of no bytes, or within the host, waits for nothing; of those no row tells.
        rows &= calls.seen | ((calls.does & COPY) == 0) | (not calls.seen.any())
        return _Proofs.of(self.calls.start_ns[rows], self.calls.end_ns[rows])

    def _others(self, missing: IntArray) -> list[tuple[int, int, int]]:
        """Return streams in which calls may be that are taken for ones of another stream.

        With the thread that uses each, and the place of its last call there that left a row: the
        first that left none comes no later than this stream was used all along.
        """
        calls, found = self.calls, []
        work = (calls.does & (KERNEL | GRAPH)) != 0
        for thread in distinct(calls.thread[missing]).tolist():
            place = np.flatnonzero(work & (calls.thread == thread))
            seen, stream = calls.seen[place], self.stream[place]
            used = distinct(stream[seen])
            for other in used.tolist() if used.size > 1 else ():
                at = np.flatnonzero(seen & (stream == other))
                gone = np.flatnonzero(calls.missing[place[at[-1] :]])
                if at.size > 1 and gone.size and gone[0] <= _REGULAR * np.diff(at).max():
                    found.append((thread, other, int(place[at[-1]])))
        return found


def _stream_of(op: Table) -> IntArray:
    device = op["device_id"]
    if "stream_id" not in op:
        return np.asarray(device << _STREAM_BITS)
    stream = op["stream_id"]
    return np.where(stream == NULL_INT, _ANY, (device << _STREAM_BITS) | (stream & _ALL_STREAMS))


def _waited_for(waits: Table, ids: IntArray) -> IntArray:
    """Return the stream that CUPTI says was waited for, by correlation id; `_ANY` for no word."""
    order = np.argsort(waits["correlation_id"], kind="stable")
    sorted_ids = waits["correlation_id"][order]
    at = order[np.minimum(np.searchsorted(sorted_ids, ids), order.size - 1)]
    return np.where(waits["correlation_id"][at] == ids, _stream_of(waits)[at], _ANY)


def _supposed(calls: LaunchCalls, stream: IntArray, known: Mask) -> IntArray:
    """Return the stream of each call, from the thread's other work where it is not known."""
    work = (calls.does & WORK) != 0
    launches = (calls.does & (KERNEL | GRAPH)) != 0
    for of, to in ((known & launches, launches), (known & work, np.ones(work.size, dtype=bool))):
        before = calls.last(of)
        near = np.where(before >= 0, before, calls.next(of))
        fill = to & ~known & (stream == _ANY) & (near >= 0)
        stream = np.where(fill, stream[near], stream)
    return stream
