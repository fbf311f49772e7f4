"""The calls of threads as lines of time: what each thread was in at each instant. Pure numpy.

Calls of one thread may be nested (a runtime call that makes a driver call); the outermost counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.enclosing import first_above
from nsys_llm.numeric.gaps import Positions, start_order
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray


@dataclass(frozen=True)
class ThreadCalls:
    """Calls by thread and, within one, by start; they overlap nowhere.

    Attributes:
        start_ns: Shape (calls,).
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
        threads, code = _codes(thread[chosen])
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
            at_ns: Shape (n,).
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


def _codes(thread: IntArray) -> tuple[IntArray, Positions]:
    """Return the distinct threads, sorted, and the position of each call's among them."""
    threads, code = distinct_codes(thread)
    return threads, code.astype(np.int32)


def _order(
    start_ns: IntArray, end_ns: IntArray, code: Positions, threads_n: int
) -> IntArray | None:
    """Return the order by thread, start and nesting; None if that is how the rows are."""
    # Of two calls that start together, the longer is the outer one. One of no length holds
    # nothing, and had returned when the other began.
    order = start_order(
        start_ns,
        lambda some: ((end_ns[some] > start_ns[some]).astype(np.int64), -end_ns[some]),
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
