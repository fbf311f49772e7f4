"""The NVTX ranges of one process as trees, one a thread, and which range is open when. Pure numpy.

Push/pop ranges of one domain nest; those of two domains may interleave. A range that outlives the
one around it is cut there: its pieces nest properly, the range that began last is the innermost at
every instant, and what is around a piece is open as long as the piece is.

Start/end ranges belong to the process and nest in nothing. They stand last, as the ranges of a
thread of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.enclosing import innermost, last_open
from nsys_llm.numeric.grouping import distinct, split_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.ranges import PUSH_POP, START_END, closed_ends, lasting

#: Ranges cut into more pieces than this many each, and so many besides, are not cut further but
#: end where the range around them ends. Real ones nest, or interleave in two or three domains.
_PIECES_EACH: Final = 8
_PIECES_MORE: Final = 1 << 17
#: So many steps from a range to the one around it cost less than a search.
_STEPS_UP: Final = 16

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NvtxTree:
    """Pieces of ranges by thread and, within one, by start, the outer first; of shape (pieces,).

    Attributes:
        event: Row of the NVTX event.
        start_ns: Ascending within a thread.
        end_ns: Later than the start; the end of the capture where a range was never closed.
        parent: Position of the piece around each; -1 for an outermost one and start/end ranges.
        first: Whether it is the first piece of its range: those are as many as the ranges.
        bounds: Shape (threads + 2,): pieces of thread t lie at bounds[t] to bounds[t + 1], and
            start/end ranges behind those of all threads.
        threads: Shape (threads,), globalTid of threads with push/pop ranges, sorted.
        without_end_n: Ranges that were never closed.
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
        threads = distinct(tids[pushed])
        parts = [
            _tree(rows, starts[rows], ends[rows])
            for rows in (pushed[tids[pushed] == thread] for thread in threads.tolist())
        ]
        free = np.flatnonzero(real & (kind == START_END))
        order = np.lexsort((-ends[free], starts[free]))
        free = free[order]
        alone = np.full(free.size, -1, dtype=np.int64)
        parts.append(_Tree(free, starts[free], ends[free], alone, alone < 0))
        return cls._joined(
            parts, threads, int((is_range & is_open).sum()), int((is_range & ~real).sum())
        )

    @classmethod
    def _joined(
        cls, parts: list[_Tree], threads: IntArray, without_end_n: int, empty_n: int
    ) -> NvtxTree:
        nothing = np.empty(0, dtype=np.int64)
        parts = parts or [_Tree(nothing, nothing, nothing, nothing, nothing < 0)]
        bounds = np.cumsum([0, *(part.row.size for part in parts)])
        parents = [
            np.where(part.parent < 0, -1, part.parent + low)
            for part, low in zip(parts, bounds.tolist(), strict=False)
        ]
        return cls(
            event=np.concatenate([part.row for part in parts]),
            start_ns=np.concatenate([part.start_ns for part in parts]),
            end_ns=np.concatenate([part.end_ns for part in parts]),
            parent=np.concatenate(parents),
            first=np.concatenate([part.first for part in parts]),
            bounds=bounds,
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
            at_ns: Shape (k,).
            chosen: Shape (pieces,), the pieces that count; None: all.
        """
        piece_of = np.full(at_ns.shape, -1, dtype=np.int64)
        one_thread = thread.size and (thread == thread[0]).all()
        for code in [int(thread[0])] if one_thread else np.unique(thread).tolist():
            if code < 0:
                continue
            selected = slice(None) if one_thread else np.flatnonzero(thread == code)
            low, high = self.bounds[code : code + 2].tolist()
            if chosen is None and code < self.free:
                piece_of[selected] = self._innermost_nested(low, high, at_ns[selected])
                continue
            starts, ends, pieces = self.start_ns[low:high], self.end_ns[low:high], None
            if chosen is not None:
                pieces = np.flatnonzero(chosen[low:high])
                starts, ends = starts[pieces], ends[pieces]
            place = innermost(at_ns[selected], starts, ends)
            if pieces is not None:
                place = np.where(place < 0, -1, np.append(pieces, -1)[place])
            piece_of[selected] = np.where(place < 0, -1, place + low)
        return piece_of

    def _innermost_nested(self, low: int, high: int, at_ns: IntArray) -> IntArray:
        """Return the innermost of the nested pieces low .. high - 1 at each instant, or -1.

        It is the last one begun or around that one, mostly a few steps away.
        """
        piece = np.searchsorted(self.start_ns[low:high], at_ns, side="right") + (low - 1)
        piece[piece < low] = -1
        waiting = np.flatnonzero((piece >= 0) & (self.end_ns[piece] <= at_ns))
        for _ in range(_STEPS_UP):
            above = self.parent[piece[waiting]]
            piece[waiting] = above
            waiting = waiting[(above >= 0) & (self.end_ns[above] <= at_ns[waiting])]
        # Behind deep chains of ranges that have ended, which are as long as they were deep.
        if waiting.size:
            found = last_open(piece[waiting] - low, at_ns[waiting], self.end_ns[low:high])
            piece[waiting] = np.where(found < 0, -1, found + low)
        return piece

    @cached_property
    def depth(self) -> IntArray:
        """How many ranges are around each piece."""
        depth = np.zeros(len(self), dtype=np.int64)
        waiting = np.flatnonzero(self.parent >= 0)
        above = self.parent[waiting]
        while waiting.size:
            depth[waiting] += 1
            above = self.parent[above]
            waiting, above = waiting[above >= 0], above[above >= 0]
        return depth

    @cached_property
    def levels(self) -> list[IntArray]:
        """The pieces of each depth from 1 on."""
        return split_by_code(self.depth, int(self.depth.max(initial=0)) + 1)[1:]

    def nearest(self, chosen: _Mask) -> IntArray:
        """Return the chosen piece that is each piece itself or nearest around it, or -1.

        Args:
            chosen: Shape (pieces,).
        """
        nearest_piece = np.where(chosen, np.arange(len(self)), -1)
        for level in self.levels:
            level_pieces = nearest_piece[level]
            nearest_piece[level] = np.where(
                level_pieces < 0, nearest_piece[self.parent[level]], level_pieces
            )
        return nearest_piece

    def around(self, chosen: _Mask) -> IntArray:
        """Return the chosen piece nearest around each piece, itself not counted, or -1."""
        return np.append(self.nearest(chosen), -1)[self.parent]

    def rolled_up(self, values: IntArray) -> IntArray:
        """Return the sum over each piece and all inside it; `values` has shape (pieces,)."""
        total = values.copy()
        for level in reversed(self.levels):
            np.add.at(total, self.parent[level], total[level])
        return total

    def self_wall_ns(self) -> IntArray:
        """Return how long each piece was open with no other inside it; shape (pieces,)."""
        wall_ns = self.end_ns - self.start_ns
        inner = np.flatnonzero(self.parent >= 0)
        within_ns = np.zeros(len(self), dtype=np.int64)
        np.add.at(within_ns, self.parent[inner], wall_ns[inner])
        return wall_ns - within_ns


@dataclass(frozen=True)
class _Tree:
    """Pieces of one thread; see `NvtxTree`."""

    row: IntArray
    start_ns: IntArray
    end_ns: IntArray
    parent: IntArray
    first: _Mask


def _tree(row: IntArray, start_ns: IntArray, end_ns: IntArray) -> _Tree:
    """Return the tree of one thread's push/pop ranges, in any order."""
    step = np.diff(start_ns)
    if (step <= 0).any():
        order = np.lexsort((-end_ns, start_ns))
        row, start_ns, end_ns = row[order], start_ns[order], end_ns[order]
    origin, first = np.arange(row.size), np.ones(row.size, dtype=bool)
    most = _PIECES_EACH * row.size + _PIECES_MORE
    while True:
        parent = last_open(np.arange(row.size) - 1, start_ns, end_ns)
        outlives = np.flatnonzero(parent >= 0)
        outlives = outlives[end_ns[outlives] > end_ns[parent[outlives]]]
        if not outlives.size:
            return _Tree(row, start_ns, end_ns, parent, first)
        ends = end_ns.copy()
        ends[outlives] = end_ns[parent[outlives]]
        if row.size + outlives.size > most:
            end_ns = ends
            continue
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
