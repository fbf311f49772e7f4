"""Splits the time of gaps among causes, exactly, and adds it up; see `taxonomy.idle_causes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.concurrently import concurrently
from nsys_llm.facts.device.host_timeline import CALLS_BLOCK, HostTimeline
from nsys_llm.numeric.gaps import Gaps, Positions
from nsys_llm.numeric.grouping import distinct_codes, exact_sums, split_by_code
from nsys_llm.numeric.intervals import IntArray, clip_to_windows, clipped_lengths
from nsys_llm.numeric.stacking import Rows
from nsys_llm.taxonomy import idle_causes
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES

_NOWHERE = -1
#: Lengths of gaps (the peer survey's buckets); an edge belongs to the bucket above it.
BUCKET_EDGES_NS: Final = (5_000, 20_000, 100_000, 1_000_000, 10_000_000)
BUCKETS: Final = ("<5 us", "5-20 us", "20-100 us", "100 us-1 ms", "1-10 ms", ">=10 ms")

_CAUSES_N: Final = len(CAUSE_NAMES)
# So many gaps and all causes stay in the processor's cache (2 MB).
_BLOCK: Final = 1 << 14


@dataclass(frozen=True)
class Situations(Rows):
    """Where the launch of the next operation stands in each gap; all of shape (gaps,).

    Attributes:
        call: Place of the launching call, the outermost one; -1 where it is not known.
        late_ns: When it began, moved into the gap: until then its thread did something else.
        done_ns: When it returned, moved into the gap.
        whole: The cause of all of the gap, -1 where it has to be split.
        other: Thread that launched the operation before, if it is another one; -1 otherwise.
    """

    call: IntArray
    late_ns: IntArray
    done_ns: IntArray
    whole: IntArray
    other: IntArray


@dataclass(frozen=True)
class Split:
    """The time of gaps by cause.

    Attributes:
        time_ns: Shape (causes, gaps), int64; the causes of a gap add up to its length.
        certain_ns: Likewise, the part for which the trace shows the cause itself.
    """

    time_ns: IntArray
    certain_ns: IntArray


def situate(gaps: Gaps, launch_row: Positions, host: HostTimeline) -> Situations:
    """Find the launches of the operations around gaps.

    Args:
        launch_row: Shape (operations,), row of the launching call in the table; -1 without one.
    """
    calls = host.calls
    call, before = (
        launching_calls(gaps.after, launch_row, host),
        launching_calls(gaps.before, launch_row, host),
    )
    known = call >= 0
    at = np.maximum(call, 0)
    if calls.row.size:
        starts, ends, thread = calls.start_ns[at], calls.end_ns[at], calls.thread[at]
        graph = host.graph_launch[at] & (before == call)
        other = np.where(before >= 0, calls.thread[np.maximum(before, 0)], _NOWHERE)
        other = np.where(known & (other != thread), other, _NOWHERE)
    else:
        starts = ends = at
        graph, other = known, np.full_like(at, _NOWHERE)
    late_ns = np.clip(starts, gaps.start_ns, gaps.end_ns)
    whole = np.where(graph | (ends <= gaps.since_ns), idle_causes.QUEUED, _NOWHERE)
    if host.clock_error_ns:
        # How much earlier its call returned is what makes sure that it was queued.
        sure = graph | (ends <= gaps.since_ns - host.clock_error_ns)
        short = gaps.end_ns - gaps.start_ns < host.clock_error_ns
        whole = np.where(short & ~sure, idle_causes.UNRESOLVED, whole)
    whole = np.where(
        known, whole, np.where(gaps.after < 0, idle_causes.AFTER_LAST, idle_causes.NO_API)
    )
    return Situations(call, late_ns, np.clip(ends, late_ns, gaps.end_ns), whole, other)


def split_gaps(gaps: Gaps, where: Situations, host: HostTimeline) -> Split:
    """Split the time of gaps; they are of one device and in order of time."""
    split = _parts(gaps.start_ns, gaps.end_ns, where, host)
    for work in host.driver:
        selected = np.flatnonzero((where.whole < 0) & (where.done_ns > gaps.start_ns))
        selected = selected[host.calls.thread[where.call[selected]] == work.thread]
        inside = np.column_stack((gaps.start_ns[selected], where.done_ns[selected]))
        _overlay(split, work.spans, inside, selected, where, host, work.cause)
    rows = np.arange(len(gaps))
    for spans, cause in (
        *((spans, cause) for cause, spans in host.away.items()),
        (host.profiler, idle_causes.PROFILER_OVERHEAD),
    ):
        _overlay(split, spans, gaps.spans, rows, where, host, cause)
    split.certain_ns[list(idle_causes.UNCERTAIN)] = 0
    return split


def launching_calls(op: Positions, launch_row: Positions, host: HostTimeline) -> IntArray:
    """Return the outermost call that launched each operation, -1 where there is none."""
    if not host.calls.row.size or not launch_row.size:
        return np.full(op.shape, _NOWHERE, dtype=np.int64)
    row = np.where(op >= 0, launch_row[np.maximum(op, 0)], _NOWHERE)
    place = np.where(row >= 0, host.calls.place[np.maximum(row, 0)], _NOWHERE)
    return np.where(place >= 0, host.calls.outer[np.maximum(place, 0)], _NOWHERE)


def _overlay(
    split: Split,
    spans: IntArray,
    inside: IntArray,
    rows: IntArray,
    where: Situations,
    host: HostTimeline,
    cause: int,
) -> None:
    """Give a cause the time of `spans` in some gaps, and take it from those that had it.

    Args:
        split: Of the gaps; changed in place.
        spans: Shape (n, 2), sorted and disjoint.
        inside: Shape (m, 2), sorted and disjoint: the part of each of the gaps that may be given.
    """
    if not len(spans) or not len(inside):
        return
    _, starts, ends, at = _cut(spans, inside)
    if not starts.size:
        return
    row = rows[at]
    taken = _parts(starts, ends, where.take(row), host)
    length = ends - starts
    for whole, part in ((split.time_ns, taken.time_ns), (split.certain_ns, taken.certain_ns)):
        for code in np.flatnonzero(part.any(axis=1)).tolist():
            np.subtract.at(whole[code], row, part[code])
        np.add.at(whole[cause], row, length)


def _cut(spans: IntArray, inside: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the pieces of spans in stretches: their spans, begins, ends and stretches."""
    low = np.searchsorted(spans[:, 1], inside[0, 0], side="right")
    high = np.searchsorted(spans[:, 0], inside[-1, 1], side="left")
    owner, starts, ends = clip_to_windows(spans[low:high, 0], spans[low:high, 1], inside)
    return owner + low, starts, ends, np.searchsorted(inside[:, 0], starts, side="right") - 1


def _parts(start_ns: IntArray, end_ns: IntArray, where: Situations, host: HostTimeline) -> Split:
    """Split stretches, each inside one gap, by what the host did; `where` is of their gaps."""
    time_ns = np.zeros((len(idle_causes.CAUSE_NAMES), start_ns.size), dtype=np.int64)
    whole = np.flatnonzero(where.whole >= 0)
    time_ns[where.whole[whole], whole] = (end_ns - start_ns)[whole]
    rest = np.flatnonzero(where.whole < 0)
    if not rest.size:
        return Split(time_ns, time_ns.copy())
    begin, end, call = start_ns[rest], end_ns[rest], where.call[rest]
    late, done = where.late_ns[rest], where.done_ns[rest]
    time_ns[idle_causes.LAUNCH_LATENCY, rest] = np.maximum(end - np.maximum(begin, done), 0)
    free = np.maximum(np.minimum(end, late) - begin, 0)
    launching = end - begin - time_ns[idle_causes.LAUNCH_LATENCY, rest] - free
    owner, cause, inside = _calls_within(begin, np.minimum(end, late), call, host)
    np.add.at(time_ns, (cause, rest[owner]), inside)
    np.subtract.at(free, owner, inside)
    time_ns[host.cause[call], rest] += launching
    time_ns[idle_causes.HOST_NO_CUDA, rest] = free
    split = Split(time_ns, time_ns.copy())
    handed = np.flatnonzero((where.other[rest] >= 0) & (free > 0))
    if handed.size:
        rows = rest[handed]
        _hand_over(split, start_ns[rows], np.minimum(end, late)[handed], rows, where, host)
    return split


def _calls_within(
    begin_ns: IntArray, end_ns: IntArray, call: IntArray, host: HostTimeline
) -> tuple[IntArray, IntArray, IntArray]:
    """Return what a thread did before a call: stretch, cause and ns, each call or a few in sum.

    Args:
        end_ns: Shape (n,), its end, at most the start of the call; not after `begin_ns`: nothing.
    """
    calls = host.calls
    rows = np.flatnonzero(end_ns > begin_ns)
    first = calls.ended_before(begin_ns[rows], call[rows])
    # Of calls that overlap, as they do where threads are mixed up, many lie between a gap and its
    # launch that begin behind both.
    until = np.maximum(calls.begun_from(end_ns[rows], call[rows]), first)
    # Only the first and the last call may reach out of a stretch: blocks between are there in sum.
    low, high = first // CALLS_BLOCK + 1, (until - 1) // CALLS_BLOCK
    long = np.flatnonzero(high > low)
    stops = until.copy()
    stops[long] = low[long] * CALLS_BLOCK
    begins = np.concatenate((first, high[long] * CALLS_BLOCK))
    count = np.concatenate((stops, until[long])) - begins
    owner = np.repeat(np.concatenate((rows, rows[long])), count)
    place = np.arange(owner.size) + np.repeat(begins - (np.cumsum(count) - count), count)
    inside = np.minimum(calls.end_ns[place], end_ns[owner]) - np.maximum(
        calls.start_ns[place], begin_ns[owner]
    )
    cause, inside = host.cause[place].astype(np.int64), np.maximum(inside, 0)
    if not long.size:
        return owner, cause, inside
    sums = host.cause_ns[:, high[long]] - host.cause_ns[:, low[long]]
    summed, at = np.nonzero(sums)
    return (
        np.concatenate((owner, rows[long][at])),
        np.concatenate((cause, summed)),
        np.concatenate((inside, sums[summed, at])),
    )


def _hand_over(
    split: Split,
    begin_ns: IntArray,
    end_ns: IntArray,
    rows: IntArray,
    where: Situations,
    host: HostTimeline,
) -> None:
    """Give time without a CUDA call to what the thread before was held by; in place, not certain.

    Args:
        begin_ns: Shape (n,), the part of some stretches before the launching call: its begin.
    """
    other, launching = where.other[rows], host.calls.thread[where.call[rows]]
    threads, code = distinct_codes(other)
    of_thread = split_by_code(code, threads.size)
    for thread, selected in zip(threads.tolist(), of_thread, strict=True):
        inside = np.column_stack((begin_ns[selected], end_ns[selected]))
        spans, cause = host.spans(thread, blocking=True)
        if not cause.size:
            continue
        of_span, starts, ends, of_stretch = _cut(spans, inside)
        at = selected[of_stretch]
        length = ends - starts
        for busy in np.unique(launching[at]).tolist():
            both = launching[at] == busy
            calls, _ = host.spans(busy, blocking=False)
            length[both] -= clipped_lengths(starts[both], ends[both], calls)
        np.add.at(split.time_ns, (cause[of_span], rows[at]), length)
        np.subtract.at(split.time_ns[idle_causes.HOST_NO_CUDA], rows[at], length)


@dataclass(frozen=True)
class GapSums:
    """Sums over the gaps of one device; all arrays int64.

    Attributes:
        gaps_n: Shape (causes, buckets), gaps named after a cause.
        time_ns: Likewise, time of a cause in all gaps.
        certain_ns: Likewise, the part for which the trace shows the cause itself.
        named: Shape (gaps,), the cause that each gap is named after; empty where it is sent.
    """

    gaps_n: IntArray
    time_ns: IntArray
    certain_ns: IntArray
    named: npt.NDArray[np.int8]

    def without_names(self) -> GapSums:
        """Return the sums alone, whose size does not grow with the number of gaps."""
        return replace(self, named=self.named[:0].copy())


def sum_gaps(gaps: Gaps, launch_row: Positions, host: HostTimeline) -> GapSums:
    """Split all gaps of a device and add their parts up."""
    named = np.empty(len(gaps), dtype=np.int8)
    blocks = [slice(first, first + _BLOCK) for first in range(0, len(gaps), _BLOCK)]

    def sums(some: Sequence[slice]) -> tuple[IntArray, ...]:
        """Name the gaps of some blocks, and add them up: all but the last field of the result."""
        gaps_n, time_ns, certain_ns = np.zeros((3, _CAUSES_N, len(BUCKETS)), dtype=np.int64)
        for block in some:
            selected = gaps.take(block)
            split = split_gaps(selected, situate(selected, launch_row, host), host)
            length, cause = selected.end_ns - selected.start_ns, split.time_ns.argmax(axis=0)
            named[block] = cause
            bucket = np.searchsorted(BUCKET_EDGES_NS, length, side="right")
            _add(time_ns, split.time_ns, bucket)
            _add(certain_ns, split.certain_ns, bucket)
            in_bucket = cause * len(BUCKETS) + bucket
            gaps_n += np.bincount(in_bucket, minlength=gaps_n.size).reshape(gaps_n.shape)
        return gaps_n, time_ns, certain_ns

    halves = concurrently(len(gaps), lambda: sums(blocks[::2]), lambda: sums(blocks[1::2]))
    gaps_n, time_ns, certain_ns = (left + right for left, right in zip(*halves, strict=True))
    return GapSums(gaps_n, time_ns, certain_ns, named)


def _add(sums: IntArray, parts: IntArray, bucket: IntArray) -> None:
    for code in np.flatnonzero(parts.any(axis=1)).tolist():
        sums[code] += exact_sums(bucket, parts[code], len(BUCKETS))
