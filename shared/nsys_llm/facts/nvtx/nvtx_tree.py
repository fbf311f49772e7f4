"""The NVTX ranges of one process as trees, one a thread, and which range is open when. Pure numpy.

Push/pop ranges of one domain nest; those of two domains may interleave. A range that outlives the
one around it is cut there: its pieces nest properly, the range that began last is the innermost at
every instant, and what is around a piece is open as long as the piece is.

Start/end ranges belong to the process and nest in nothing. They stand last, as the ranges of a
thread of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.enclosing import first_above, innermost, last_open
from nsys_llm.numeric.grouping import distinct, distinct_codes, order_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.ranges import PUSH_POP, START_END, closed_ends, lasting

#: Ranges cut into more pieces than this many each, and so many besides, are not cut further but
#: end where the range around them ends. Real ones nest, or interleave in two or three domains.
_PIECES_EACH: Final = 8
_PIECES_MORE: Final = 1 << 17
#: So often all pieces may be gone through for it; two domains take a round for each level of one.
_ROUNDS: Final = 4
#: Threads are laid behind each other on one line of time, which is no longer than this.
_TIME_LINE_NS: Final = 1 << 62
#: So many steps from a range to the one around it cost less than a search.
_STEPS_UP: Final = 16

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NvtxTree:
    """Pieces of ranges by thread and, within one, by start, the outer first; of shape (pieces,).

    Attributes:
        start_ns: Ascending within a thread.
        end_ns: Later than the start; the end of the capture where a range was never closed.
        parent: Position of the piece around each; -1 for an outermost one and start/end ranges.
        first: Whether it is the first piece of its range: those are as many as the ranges.
        bounds: Shape (threads + 2,): pieces of thread t lie at bounds[t] to bounds[t + 1], and
            start/end ranges behind those of all threads.
        threads: Shape (threads,), globalTid of threads with push/pop ranges, sorted.
        empty_n: Ranges that end where they start, or before, or have a time that no capture can
            have; nothing can lie in them.
    """

    event: IntArray
    start_ns: IntArray
    end_ns: IntArray
    parent: IntArray
    first: _Mask
    bounds: IntArray
    threads: IntArray
    without_end_n: int
    empty_n: int

    @classmethod
    def of(cls, events: Table | None, capture_end_ns: int) -> NvtxTree:
        """Make the trees of one process.

        Args:
            events: Columns start_ns, end_ns, event_type, global_tid; None where there are none.
            capture_end_ns: Where ranges without an end stop.
        """
        if events is None or not len(events):
            return cls._joined([], np.empty(0, dtype=np.int64), 0, 0)
        kind, tids = events["event_type"], events["global_tid"]
        is_range = (kind == PUSH_POP) | (kind == START_END)
        starts = events["start_ns"]
        ends, is_open = closed_ends(events["end_ns"], capture_end_ns)
        real = is_range & lasting(starts, ends)
        pushed = np.flatnonzero(real & (kind == PUSH_POP))
        threads, code = distinct_codes(tids[pushed])
        order = order_by_code(code)
        parts = _trees(pushed[order], starts, ends, np.bincount(code, minlength=threads.size))
        free = np.flatnonzero(real & (kind == START_END))
        free = free[np.lexsort((-ends[free], starts[free]))]
        alone = np.full(free.size, -1, dtype=np.int64)
        behind = _Tree(free, starts[free], ends[free], alone, alone < 0, alone + len(threads) + 1)
        return cls._joined(
            [*parts, behind],
            threads,
            int((is_range & is_open).sum()),
            int((is_range & ~real).sum()),
        )

    @classmethod
    def _joined(
        cls, parts: Sequence[_Tree], threads: IntArray, without_end_n: int, empty_n: int
    ) -> NvtxTree:
        nothing = np.empty(0, dtype=np.int64)
        parts = parts or [_Tree(nothing, nothing, nothing, nothing, nothing < 0, nothing)]
        lows = np.cumsum([0, *(part.row.size for part in parts)]).tolist()
        parents = [
            np.where(part.parent < 0, -1, part.parent + low)
            for part, low in zip(parts, lows, strict=False)
        ]
        thread = np.concatenate([part.thread for part in parts])
        return cls(
            event=np.concatenate([part.row for part in parts]),
            start_ns=np.concatenate([part.start_ns for part in parts]),
            end_ns=np.concatenate([part.end_ns for part in parts]),
            parent=np.concatenate(parents),
            first=np.concatenate([part.first for part in parts]),
            bounds=np.searchsorted(thread, np.arange(threads.size + 2)),
            threads=threads,
            without_end_n=without_end_n,
            empty_n=empty_n,
        )

    def __len__(self) -> int:
        return self.event.size

    @property
    def free(self) -> int:
        """Code of the thread that stands for start/end ranges; there is one even without any."""
        return len(self.bounds) - 2

    @property
    def pushed_n(self) -> int:
        """How many pieces are of push/pop ranges; those of start/end ranges follow."""
        return int(self.bounds[-2])

    def thread_codes(self, global_tid: IntArray) -> IntArray:
        """Return the code of each thread, -1 for one without push/pop ranges."""
        if not self.threads.size:
            return np.full(global_tid.shape, -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.threads, global_tid), self.threads.size - 1)
        return np.where(self.threads[place] == global_tid, place, -1)

    def innermost(self, thread: IntArray, at_ns: IntArray, chosen: _Mask | None = None) -> IntArray:
        """Return the piece that began last of those open on a thread at an instant, or -1.

        Args:
            thread: Shape (k,), codes; -1 has none.
            chosen: Shape (pieces,), the pieces that count; None: all.
        """
        piece = np.full(at_ns.shape, -1, dtype=np.int64)
        if not len(self):
            return piece
        known = slice(None) if (thread >= 0).all() else np.flatnonzero(thread >= 0)
        code, instants = thread[known], at_ns[known]
        pieces = None if chosen is None else np.flatnonzero(chosen)
        bounds = self.bounds
        some: slice | IntArray = slice(None)
        if pieces is not None:
            bounds, some = np.searchsorted(pieces, self.bounds), pieces
        last = first_above(self.start_ns[some], instants, code, bounds) - 1
        last[last < bounds[code]] = -1
        if pieces is None:
            last = self._open_or_around(last, instants)
        else:
            last = last_open(last, instants, self.end_ns[pieces])
        # Behind all of its thread that have ended may stand one of another thread.
        last[last < bounds[code]] = -1
        piece[known] = last if pieces is None else np.append(pieces, -1)[last]
        return piece

    def _open_or_around(self, piece: IntArray, at_ns: IntArray) -> IntArray:
        """Return the last piece open at an instant among those up to a piece; -1: none.

        It is the piece itself or one around it, mostly a few steps away; of start/end ranges, which
        nest in nothing, any before.
        """
        waiting = np.flatnonzero((piece >= 0) & (self.end_ns[piece] <= at_ns))
        nested = waiting[piece[waiting] < self.pushed_n]
        after = [waiting[piece[waiting] >= self.pushed_n]]
        for _ in range(_STEPS_UP):
            above = self.parent[piece[nested]]
            piece[nested] = above
            nested = nested[(above >= 0) & (self.end_ns[above] <= at_ns[nested])]
        # Behind deep chains of ranges that have ended, which are as long as they were deep.
        rows = np.concatenate([*after, nested])
        if rows.size:
            piece[rows] = last_open(piece[rows], at_ns[rows], self.end_ns)
        return piece

    @cached_property
    def thread(self) -> npt.NDArray[np.int32]:
        """The code of each piece's thread."""
        return np.repeat(np.arange(self.bounds.size - 1, dtype=np.int32), np.diff(self.bounds))

    @cached_property
    def _behind(self) -> IntArray:
        """The first piece behind each piece and all inside it."""
        behind = np.arange(len(self)) + 1
        inner = slice(0, self.pushed_n)
        behind[inner] = first_above(
            self.start_ns, self.end_ns[inner] - 1, self.thread[inner], self.bounds
        )
        return behind

    @cached_property
    def depth(self) -> IntArray:
        """How many ranges are around each piece."""
        change = np.zeros(len(self) + 1, dtype=np.int64)
        change[1 : self.pushed_n + 1] += 1
        np.subtract.at(change, self._behind[: self.pushed_n], 1)
        return np.cumsum(change[:-1])

    def nearest(self, chosen: _Mask) -> IntArray:
        """Return the chosen piece that is each piece itself or nearest around it, or -1.

        Args:
            chosen: Shape (pieces,).
        """
        if not len(self):
            return np.empty(0, dtype=np.int64)
        pieces = np.flatnonzero(chosen)
        place = np.cumsum(chosen) - 1
        place = last_open(place, self.start_ns, self.end_ns[pieces])
        piece = np.append(pieces, -1)[place]
        piece[piece < self.bounds[self.thread]] = -1
        piece[self.pushed_n :] = np.where(chosen, np.arange(len(self)), -1)[self.pushed_n :]
        return piece

    def around(self, chosen: _Mask) -> IntArray:
        """Return the chosen piece nearest around each piece, itself not counted, or -1."""
        return np.append(self.nearest(chosen), -1)[self.parent]

    def inside_same(self, code: IntArray) -> _Mask:
        """Return which pieces have one of the same code around; `code` has shape (pieces,)."""
        order = np.argsort(code, kind="stable")
        # They nest: one lies in another of its code where one before it reaches behind it.
        reached = np.maximum.accumulate(code[order] * (len(self) + 1) + self._behind[order])
        inside = np.zeros(len(self), dtype=bool)
        inside[order[1:]] = reached[:-1] > code[order[1:]] * (len(self) + 1) + order[1:]
        return inside

    def rolled_up(self, values: IntArray) -> IntArray:
        """Return the sum over each piece and all inside it; `values` has shape (pieces,)."""
        until = np.concatenate(([0], np.cumsum(values)))
        return np.asarray(until[self._behind] - until[:-1])

    def over_inner(self, values: IntArray, least_or_most: np.ufunc) -> IntArray:
        """Return `np.minimum` or `np.maximum` over each piece and all inside it."""
        total, above = values.copy(), self.parent
        # What is below at up to 1, 2, 4, ... steps: as many rounds as the depth has digits.
        while (rows := np.flatnonzero(above >= 0)).size:
            least_or_most.at(total, above[rows], total[rows].copy())
            above = np.where(above < 0, -1, above[above])
        return total

    def self_host_ns(self) -> IntArray:
        """Return how long each piece was open with no other inside it; shape (pieces,)."""
        host_ns = self.end_ns - self.start_ns
        inner = np.flatnonzero(self.parent >= 0)
        within_ns = np.zeros(len(self), dtype=np.int64)
        np.add.at(within_ns, self.parent[inner], host_ns[inner])
        return host_ns - within_ns


@dataclass(frozen=True)
class _Tree:
    """Pieces of some threads, `thread` in ascending order; see `NvtxTree`."""

    row: IntArray
    start_ns: IntArray
    end_ns: IntArray
    parent: IntArray
    first: _Mask
    thread: IntArray


def _trees(row: IntArray, start_ns: IntArray, end_ns: IntArray, sizes: IntArray) -> Iterator[_Tree]:
    """Yield the trees of all threads, as many at a time as fit one line of time.

    Args:
        row: Shape (ranges,), rows of push/pop ranges, those of a thread together.
    """
    if not row.size:
        return
    low_ns, high_ns = int(start_ns[row].min()), int(end_ns[row].max())
    span_ns = high_ns - low_ns
    # One thread behind the other: no range of one reaches into another.
    together = max(_TIME_LINE_NS // span_ns, 1)
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    for first in range(0, sizes.size, together):
        last = min(first + together, sizes.size)
        rows = row[bounds[first] : bounds[last]]
        threads = np.arange(last - first)
        shift = np.repeat(threads * span_ns - low_ns, sizes[first:last])
        tree = _tree(rows, start_ns[rows] + shift, end_ns[rows] + shift)
        # A piece that ends where its thread's line does begins in it.
        thread = tree.start_ns // span_ns
        back_ns = low_ns - thread * span_ns
        yield replace(
            tree,
            start_ns=tree.start_ns + back_ns,
            end_ns=tree.end_ns + back_ns,
            thread=thread + first,
        )


def _tree(row: IntArray, start_ns: IntArray, end_ns: IntArray) -> _Tree:
    """Return the tree of ranges on one line of time, in any order."""
    step = np.diff(start_ns)
    if (step <= 0).any():
        order = np.lexsort((-end_ns, start_ns))
        row, start_ns, end_ns = row[order], start_ns[order], end_ns[order]
    origin, first = np.arange(row.size), np.ones(row.size, dtype=bool)
    most, work_n = _PIECES_EACH * row.size + _PIECES_MORE, 0
    while True:
        parent = last_open(np.arange(row.size) - 1, start_ns, end_ns)
        outlives = np.flatnonzero(parent >= 0)
        outlives = outlives[end_ns[outlives] > end_ns[parent[outlives]]]
        if not outlives.size:
            return _Tree(row, start_ns, end_ns, parent, first, origin)
        work_n += row.size
        if max(row.size + outlives.size, work_n // _ROUNDS) > most:
            end_ns = _ended_with_those_around(start_ns, end_ns)
            continue
        ends = end_ns.copy()
        ends[outlives] = end_ns[parent[outlives]]
        # The rest goes on behind the end of what was around it. At one instant, what began first
        # is the outer: the order of all ranges as they began.
        start_ns = np.concatenate((start_ns, ends[outlives]))
        end_ns = np.concatenate((ends, end_ns[outlives]))
        row, origin = (np.concatenate((item, item[outlives])) for item in (row, origin))
        first = np.concatenate((first, np.zeros(outlives.size, dtype=bool)))
        order = np.lexsort((origin, start_ns))
        row, origin, start_ns, end_ns, first = (
            item[order] for item in (row, origin, start_ns, end_ns, first)
        )


def _ended_with_those_around(start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return the ends of ranges, in order, each at most at the end of the one around it."""
    ends: list[int] = []
    around: list[int] = []  # ends of what is open; each depends on the one before
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        while around and around[-1] <= start:
            around.pop()
        around.append(min(end, around[-1]) if around else end)
        ends.append(around[-1])
    return np.array(ends, dtype=np.int64)


def innermost_events(
    events: Table, at_ns: IntArray, thread: IntArray, capture_end_ns: int
) -> IntArray:
    """Return for each instant the row of the innermost range that is open, or -1.

    A push/pop range holds what happens on its own thread. A start/end range holds what happens on
    any thread, and counts only where no push/pop range is open.

    Args:
        at_ns: Shape (k,), few beside the events.
        thread: Shape (k,), globalTid.
    """
    row_of = np.full(at_ns.shape, -1, dtype=np.int64)
    starts = events["start_ns"]
    ends, _ = closed_ends(events["end_ns"], capture_end_ns)
    real = lasting(starts, ends)
    pushed = real & (events["event_type"] == PUSH_POP)
    threads = distinct(thread).tolist()
    for value in threads:
        selected = slice(None) if len(threads) == 1 else np.flatnonzero(thread == value)
        thread_rows = np.flatnonzero(pushed & (events["global_tid"] == value))
        row_of[selected] = innermost_rows(thread_rows, starts, ends, at_ns[selected])
    rest = np.flatnonzero(row_of < 0)
    shared = np.flatnonzero(real & (events["event_type"] == START_END))
    row_of[rest] = innermost_rows(shared, starts, ends, at_ns[rest])
    return row_of


def innermost_rows(
    rows: npt.NDArray[np.int64], starts: IntArray, ends: IntArray, at_ns: IntArray
) -> IntArray:
    """Return which of some rows is open at each instant, the innermost, or -1; none is empty."""
    row_starts, row_ends = starts[rows], ends[rows]
    if (np.diff(row_starts) <= 0).any():
        order = np.lexsort((-row_ends, row_starts))
        rows, row_starts, row_ends = rows[order], row_starts[order], row_ends[order]
    place = innermost(at_ns, row_starts, row_ends)
    return np.where(place < 0, -1, np.append(rows, -1)[place])
