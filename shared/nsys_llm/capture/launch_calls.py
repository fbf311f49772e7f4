"""The calls of a process that start GPU work or wait for it, and what of them leaves no row. Pure.

By nature leave no row: a call that returned an error; one inside of another that launches; and what
was called while a graph was captured, which does not run then. A capture has a thread, between its
begin and its end; other threads may put work into it, which shows only in that they launch without
a row until it ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct_codes, order_by_code, replaced
from nsys_llm.numeric.intervals import IntArray, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.trace.rank_trace import sane_times

#: What a call does, as bits.
KERNEL, GRAPH, COPY, WAITS_STREAM, WAITS_ALL, _BEGINS, _ENDS = (1 << bit for bit in range(7))
WAITS_EVENT, RECORDS_EVENT, _DRIVER = (1 << bit for bit in range(7, 10))
WORK: Final = KERNEL | GRAPH | COPY
WAITS: Final = WAITS_STREAM | WAITS_ALL

_OF_CLASS: Final = {
    "launch": KERNEL,
    "graph_launch": GRAPH,
    "memcpy": COPY,
    "memset": COPY,
    "sync_memop": COPY,
}
_HINTS: Final = re.compile("Prefetch|Discard")
_BLOCKING_COPY: Final = re.compile("(?!.*DtoD).*Memcpy")
_STREAM_WAIT: Final = re.compile("StreamSynchronize")
_EVENT: Final = re.compile("Event(Synchronize|Record)")
_WIDE_WAIT: Final = re.compile("(Device|Thread|Ctx)Synchronize")
_OF_DRIVER: Final = re.compile("cu(?!da)")
_CAPTURE: Final = re.compile("Stream(Begin|End)Capture")
#: More than a thread nests captures.
_FAR: Final = 1 << 40
_NEVER: Final = int(np.iinfo(np.int64).max)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LaunchCalls:
    """Such calls by thread and, within one, by start; arrays of shape (calls,).

    Attributes:
        row: In the table of calls.
        does: Bits of the constants above.
        seen: Whether an operation of it is recorded.
        missing: Whether it starts work, left no row, and not by nature.
    """

    row: IntArray
    does: IntArray
    thread: IntArray
    start_ns: IntArray
    end_ns: IntArray
    seen: Mask
    missing: Mask

    @classmethod
    def of(cls, calls: Table, does: IntArray, seen: Mask) -> LaunchCalls:
        """Put the calls that `call_bits` knows into order; broken ones and failed are left out."""
        rows = np.flatnonzero((does != 0) & sane_times(calls["start_ns"], calls["end_ns"]))
        rows = rows[~failed(calls, rows) | (does[rows] == _ENDS)]
        starts = calls["start_ns"][rows]
        if (starts[1:] < starts[:-1]).any():
            rows = rows[np.argsort(starts, kind="stable")]
        _, thread = distinct_codes(calls["global_tid"][rows])
        if thread.any():
            order = order_by_code(thread)
            rows, thread = rows[order], thread[order]
        starts, ends = calls["start_ns"][rows], calls["end_ns"][rows]
        bits, seen = does[rows], seen[rows]
        missing = ((bits & WORK) != 0) & ~seen
        missing &= ~_nested(bits, thread, starts, ends, seen)
        missing &= ~_captured(bits, thread, starts, seen)
        return cls(rows, bits, thread, starts, ends, seen, missing)

    def __len__(self) -> int:
        return int(self.row.size)

    def last(self, of: Mask) -> IntArray:
        """Return for each call the place of the last one of its thread up to it that is `of`."""
        place = np.where(of, np.arange(len(self)), -1)
        np.maximum.accumulate(place, out=place)
        first = np.searchsorted(self.thread, self.thread)
        return np.where(place >= first, place, -1)

    def next(self, of: Mask) -> IntArray:
        """Return for each call the place of the next one of its thread from it on; -1 for none."""
        return _next(self.thread, of)


def call_bits(calls: Table, strings: Mapping[int, str]) -> IntArray:
    """Return what each call does, shape (calls,); 0 for most names."""
    return replaced(
        calls["name_id"],
        lambda used: np.array([_bits(strings.get(key, "")) for key in used.tolist()], np.int64),
    )


def failed(calls: Table, rows: IntArray) -> Mask:
    """Return which of some calls returned an error."""
    if "return_value" not in calls:
        return np.zeros(rows.size, dtype=bool)
    returned = calls["return_value"][rows]
    return np.asarray((returned != 0) & (returned != NULL_INT))


def _bits(name: str) -> int:
    api_class = classify_api(name)
    bits = 0 if _HINTS.search(name) else _OF_CLASS.get(api_class, 0)
    if api_class == "host_block":
        bits |= WAITS_STREAM * bool(_STREAM_WAIT.search(name))
        bits |= WAITS_ALL * bool(_WIDE_WAIT.search(name))
    if api_class == "sync_memop" and _BLOCKING_COPY.match(name):
        bits |= WAITS_STREAM
    if event := _EVENT.search(name):
        bits |= WAITS_EVENT if event[1] == "Synchronize" else RECORDS_EVENT
    if edge := _CAPTURE.search(name):
        bits |= _BEGINS if edge[1] == "Begin" else _ENDS
    return bits | _DRIVER if bits & WORK and _OF_DRIVER.match(name) else bits


def _nested(bits: IntArray, thread: IntArray, starts: IntArray, ends: IntArray, seen: Mask) -> Mask:
    """Return the calls of the driver inside of one of the runtime that does the same, or around.

    Of two such calls one has the row; where none has, the driver's is left out.
    """
    work = np.flatnonzero(bits & WORK)
    nested = np.zeros(bits.size, dtype=bool)
    first, second = work[:-1], work[1:]
    pair = (thread[first] == thread[second]) & (starts[second] <= ends[first])
    pair &= ((bits[first] ^ bits[second]) & _DRIVER) != 0
    for one, other in ((first[pair], second[pair]), (second[pair], first[pair])):
        nested[one[seen[other] | (~seen[one] & ((bits[one] & _DRIVER) != 0))]] = True
    return nested


def _captured(bits: IntArray, thread: IntArray, starts: IntArray, seen: Mask) -> Mask:
    """Return the calls that may have been captured into a graph; of those with a row, any."""
    begins, ends = (bits & _BEGINS) != 0, (bits & _ENDS) != 0
    if not (begins.any() or ends.any()):
        return np.zeros(bits.size, dtype=bool)
    level = np.cumsum(begins.astype(np.int64) - ends)
    first = np.searchsorted(thread, thread)
    level -= np.where(first > 0, level[first - 1], 0)
    floor = np.minimum(np.minimum.accumulate(level - _FAR * thread) + _FAR * thread, 0)
    inside = level > floor
    before = np.concatenate(([False], inside[:-1])) & (np.arange(bits.size) > first)
    close = _next(thread, ends & ~inside & before)
    own = inside & (close >= 0)
    opens = np.flatnonzero(begins & inside & ~before)
    shut = close[opens] >= 0
    begin_ns, end_ns = starts[opens[shut]], starts[close[opens[shut]]]
    # Begun or ended by a thread that did not do the other, or not while the profile was taken.
    loose_ns = _paired(starts[opens[~shut]], starts[ends & ~inside & ~before])
    spans = union_intervals(*np.concatenate((np.column_stack((begin_ns, end_ns)), loose_ns)).T)
    place = np.searchsorted(spans[:, 0], starts, side="right") - 1
    until_ns = np.append(spans[:, 1], -_NEVER)[place]  # the last one before the first span
    again = _next(thread, seen)
    again_ns = np.where(again >= 0, starts[again], _NEVER)
    return np.asarray(own | ((starts < until_ns) & (again_ns > until_ns)))


def _paired(begin_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return from each begin to the next end, shape (n, 2); one without the other goes on."""
    begin_ns, end_ns = np.sort(begin_ns), np.sort(end_ns)
    ends = np.append(end_ns, _NEVER - 1)
    after = np.searchsorted(end_ns, begin_ns)
    first = end_ns[: after[0] if after.size else None]
    spans = np.column_stack((begin_ns, ends[after]))
    return np.concatenate((np.column_stack((np.full(first.size, -_NEVER), first)), spans))


def _next(thread: IntArray, of: Mask) -> IntArray:
    """Return for each call the place of the next one of its thread from it on; -1 for none."""
    places = np.flatnonzero(of)
    at = np.searchsorted(places, np.arange(thread.size))
    place = np.append(places, thread.size)[at]
    same = place < thread.size
    same[same] = thread[place[same]] == thread[same]
    return np.where(same, place, -1)
