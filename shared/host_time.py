"""Time that threads spend in calls: summed, as unions, and beside what the GPU did. Pure numpy.

A thread is in one call at a time, unless calls nest. So the sum over a thread's calls is its union,
and only threads with nested calls are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.grouping import distinct_codes, summed
from nsys_llm.intervals import (
    IntArray,
    clip_to_windows,
    clipped_lengths,
    starts_inside,
    total_length_ns,
    union_intervals,
)

__all__ = ["GroupTimes", "HostTime", "drained_gaps"]


@dataclass(frozen=True)
class GroupTimes:
    """Time in the calls of each group; all of shape (groups,), int64 ns unless said otherwise.

    Attributes:
        total_ns: Sum over calls.
        thread_union_ns: Time of each thread in at least one of them, summed over threads.
        hidden_ns: Part of `thread_union_ns` while the GPU was busy.
        outside_ns: Part of it before the GPU's first and after its last operation.
        union_ns: Time with at least one thread in such a call.
        threads_n: Threads with such a call, a count.
    """

    total_ns: IntArray
    thread_union_ns: IntArray
    hidden_ns: IntArray
    outside_ns: IntArray
    union_ns: IntArray
    threads_n: IntArray


@dataclass(frozen=True)
class HostTime:
    """Calls of one process, cut to the windows; all arrays of shape (pieces,).

    Attributes:
        start_ns: Start of a piece.
        end_ns: Its end.
        hidden_ns: Part of it while the GPU was busy.
        thread: Code of its thread, from 0.
        owner: Row of the call that it is a piece of, or None: the rows are the pieces.
        nested: Shape (threads,), bool: whether calls of the thread overlap.
        busy: Shape (n, 2), sorted, disjoint: when the GPU was busy.
    """

    start_ns: IntArray
    end_ns: IntArray
    hidden_ns: IntArray
    thread: IntArray
    owner: IntArray | None
    nested: npt.NDArray[np.bool_]
    busy: IntArray

    @classmethod
    def of(
        cls,
        start_ns: IntArray,
        end_ns: IntArray,
        thread: IntArray,
        busy: IntArray,
        windows: IntArray | None,
    ) -> HostTime:
        """Cut calls to windows.

        Args:
            start_ns: Shape (n,), in any order.
            end_ns: Shape (n,), `end_ns >= start_ns`.
            thread: Shape (n,), any id.
            busy: Shape (m, 2), sorted and disjoint.
            windows: Shape (k, 2), sorted and disjoint; None: all time.
        """
        threads, code = distinct_codes(thread)
        owner = None
        if windows is not None:
            owner, start_ns, end_ns = clip_to_windows(start_ns, end_ns, windows)
            code = code[owner]
        return cls(
            start_ns=start_ns,
            end_ns=end_ns,
            hidden_ns=clipped_lengths(start_ns, end_ns, busy),
            thread=code,
            owner=owner,
            nested=_nested(start_ns, end_ns, code, len(threads)),
            busy=busy,
        )

    def by_group(
        self,
        group: IntArray,
        groups_n: int,
        known: Mapping[int, tuple[GroupTimes, int]] | None = None,
    ) -> GroupTimes:
        """Add the time of calls up.

        Args:
            group: Shape (calls,), the group of each call, a code from 0.
            groups_n: Number of groups.
            known: Groups that hold the same calls as a group of other times, and which that is;
                their unions need not be formed again.
        """
        known = known or {}
        group = group if self.owner is None else group[self.owner]
        threads_n = len(self.nested)
        pair = group * threads_n + self.thread
        shape = (groups_n, threads_n)
        pairs_n = groups_n * threads_n
        totals = summed(pair, self.end_ns - self.start_ns, pairs_n).reshape(shape)
        hidden = summed(pair, self.hidden_ns, pairs_n).reshape(shape)
        edge = np.flatnonzero(self._reaches_outside)
        outside = summed(
            pair[edge], self._outside_ns(self.start_ns[edge], self.end_ns[edge]), pairs_n
        ).reshape(shape)
        used = np.bincount(pair, minlength=pairs_n).reshape(shape) > 0
        unions, union_ns = totals.copy(), totals.sum(axis=1)
        rows = _Sorted(pair, pairs_n)
        for one, thread in np.argwhere(used & self.nested).tolist():
            if one in known:
                continue
            first = one * threads_n + thread
            spans = self._union(rows.between(first, first + 1))
            unions[one, thread] = total_length_ns(spans)
            hidden[one, thread] = clipped_lengths(spans[:, 0], spans[:, 1], self.busy).sum()
            outside[one, thread] = self._outside_ns(spans[:, 0], spans[:, 1]).sum()
            union_ns[one] = unions[one].sum()
        for one in set(np.flatnonzero(used.sum(axis=1) > 1).tolist()) - known.keys():
            spans = self._union(rows.between(one * threads_n, (one + 1) * threads_n))
            union_ns[one] = total_length_ns(spans)
        found = GroupTimes(
            total_ns=totals.sum(axis=1),
            thread_union_ns=unions.sum(axis=1),
            hidden_ns=hidden.sum(axis=1),
            outside_ns=outside.sum(axis=1),
            union_ns=union_ns,
            threads_n=used.sum(axis=1).astype(np.int64),
        )
        for one, (times, same) in known.items():
            for name, values in vars(found).items():
                values[one] = getattr(times, name)[same]
        return found

    @property
    def _reaches_outside(self) -> npt.NDArray[np.bool_]:
        if not len(self.busy):
            return np.ones(self.start_ns.shape, dtype=bool)
        return (self.start_ns < self.busy[0, 0]) | (self.end_ns > self.busy[-1, 1])

    def _outside_ns(self, start_ns: IntArray, end_ns: IntArray) -> IntArray:
        """Return the part of each interval before the GPU's first and after its last operation."""
        if not len(self.busy):
            return end_ns - start_ns
        span = np.array([[self.busy[0, 0], self.busy[-1, 1]]], dtype=np.int64)
        return end_ns - start_ns - clipped_lengths(start_ns, end_ns, span)

    def spans(self, group: IntArray, one: int) -> IntArray:
        """Return when at least one thread was in a call of one group, sorted and disjoint."""
        return self._union((group if self.owner is None else group[self.owner]) == one)

    def _union(self, rows: npt.NDArray[Any]) -> IntArray:
        return union_intervals(self.start_ns[rows], self.end_ns[rows])


def drained_gaps(spans: IntArray, busy: IntArray, windows: IntArray | None) -> tuple[int, int]:
    """Return how many waits the GPU came out of idle, and how long it stayed so, in ns.

    Such an idle gap begins in a wait and ends after it: the GPU ran out of work, and while it
    stood, the host gave it nothing new. A gap that ends before the wait does was between operations
    that were launched before.

    Args:
        spans: Shape (n, 2), sorted and disjoint, inside the windows: when a thread waited.
        busy: Shape (m, 2), sorted and disjoint: when the GPU was busy; gaps are between them.
        windows: Shape (k, 2), sorted and disjoint; None: all time.
    """
    starts, ends = busy[:-1, 1], busy[1:, 0]
    inside = starts_inside(starts, spans)
    starts, ends = starts[inside], ends[inside]
    wait_ends = spans[np.searchsorted(spans[:, 0], starts, side="right") - 1, 1]
    starts, ends = starts[ends >= wait_ends], ends[ends >= wait_ends]
    lengths = ends - starts if windows is None else clipped_lengths(starts, ends, windows)
    return len(starts), int(lengths.sum())


class _Sorted:
    """Rows by code, sorted when they are first asked for: most traces never need it."""

    def __init__(self, codes: IntArray, codes_n: int) -> None:
        self._codes, self._codes_n = codes, codes_n

    @cached_property
    def _order(self) -> IntArray:
        # Codes of 16 bits are sorted in linear time.
        narrow = self._codes_n <= 1 << 16
        return np.argsort(self._codes.astype(np.uint16) if narrow else self._codes, kind="stable")

    @cached_property
    def _bounds(self) -> IntArray:
        counts = np.bincount(self._codes, minlength=self._codes_n)
        return np.concatenate(([0], np.cumsum(counts)))

    def between(self, first: int, last: int) -> IntArray:
        """Return the rows whose code is in [first, last)."""
        return self._order[self._bounds[first] : self._bounds[last]]


def _nested(
    start_ns: IntArray, end_ns: IntArray, thread: IntArray, threads_n: int
) -> npt.NDArray[np.bool_]:
    """Tell for each thread whether any of its calls starts before an earlier one ended."""
    nested = np.zeros(threads_n, dtype=bool)
    rows = _Sorted(thread, threads_n)
    for one in range(threads_n):
        mine = rows.between(one, one + 1) if threads_n > 1 else slice(None)
        starts, ends = start_ns[mine], end_ns[mine]
        if (np.diff(starts) < 0).any():
            order = np.lexsort((ends, starts))
            starts, ends = starts[order], ends[order]
        nested[one] = bool((starts[1:] < ends[:-1]).any())
    return nested
