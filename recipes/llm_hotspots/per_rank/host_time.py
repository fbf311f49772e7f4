"""Time that threads spend in calls: summed, as unions, and beside what the GPU did. Pure numpy.

A thread is in one call at a time, unless calls nest. So the sum over a thread's calls is its union,
and only threads with nested calls are looked at one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.blocks import small_blocks
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    clipped_lengths,
    starts_inside,
    total_length_ns,
    union_intervals,
)


@dataclass(frozen=True)
class GroupTimes:
    """Time in the calls of each group; all of shape (groups,), int64 ns unless said otherwise.

    Attributes:
        thread_union_ns: Time of each thread in at least one of them, summed over threads.
        union_ns: Time with at least one thread in such a call.
        hidden_ns: Part of `union_ns` while the GPU was busy.
        outside_ns: Part of `union_ns` before the GPU's first and after its last operation.
        threads_n: Threads with such a call, a count.
    """

    total_ns: IntArray
    thread_union_ns: IntArray
    hidden_ns: IntArray
    outside_ns: IntArray
    union_ns: IntArray
    threads_n: IntArray

    @property
    def exposed_ns(self) -> IntArray:
        """The rest of `union_ns`: while the GPU was idle between operations."""
        return self.union_ns - self.hidden_ns - self.outside_ns


@dataclass(frozen=True)
class HostTime:
    """Calls of one process, cut to the windows; all arrays of shape (pieces,).

    Attributes:
        thread: Code of its thread, from 0.
        owner: Row of the call that it is a piece of, or None: the rows are the pieces.
        nested: Shape (threads,), bool: whether calls of the thread overlap.
        busy: Shape (n, 2), sorted, disjoint: when the GPU was busy.
    """

    start_ns: IntArray
    end_ns: IntArray
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
        nested = _nested(start_ns, end_ns, code, len(threads))
        return cls(start_ns, end_ns, code, owner, nested, busy)

    def by_group(self, group: IntArray, groups_n: int) -> GroupTimes:
        """Add the time of calls up.

        Args:
            group: Shape (calls,), the group of each call, a code from 0.
        """
        return self._closer(self._sums(group, groups_n), group)

    def by_groups(
        self, group: IntArray, groups_n: int, of_group: IntArray, coarse_n: int
    ) -> tuple[GroupTimes, GroupTimes]:
        """Add the time of calls up by group, and by sets of groups.

        Args:
            group: Shape (calls,), the group of each call, a code from 0.
            of_group: Shape (groups_n,), the set of each group, a code from 0.
        """
        sums = self._sums(group, groups_n)
        members = [np.flatnonzero(of_group == index) for index in range(coarse_n)]
        coarse = np.stack([sums[:, rows].sum(axis=1) for rows in members], axis=1)
        return self._closer(sums, group), self._closer(coarse, group, of_group)

    def _sums(self, group: IntArray, groups_n: int) -> IntArray:
        """Return calls, time, hidden and outside time by group and thread, as calls add up.

        Returns:
            Shape (4, groups, threads).
        """
        threads_n = len(self.nested)
        sums = np.zeros((4, groups_n * threads_n), dtype=np.int64)
        for block in small_blocks(self.start_ns.size):
            starts, ends = self.start_ns[block], self.end_ns[block]
            pair = self._groups(group, block) * threads_n + self.thread[block]
            np.add.at(sums[0], pair, 1)
            np.add.at(sums[1], pair, ends - starts)
            np.add.at(sums[2], pair, clipped_lengths(starts, ends, self.busy))
            np.add.at(sums[3], pair, self._outside_ns(starts, ends))
        return sums.reshape(4, groups_n, threads_n)

    def _groups(self, group: IntArray, rows: slice) -> IntArray:
        return group[rows] if self.owner is None else group[self.owner[rows]]

    def _closer(
        self, sums: IntArray, group: IntArray, of_group: IntArray | None = None
    ) -> GroupTimes:
        """Make times of sums: form the unions of nested calls, and those over several threads."""
        used, totals = sums[0] > 0, sums[1]
        unions, hidden, outside = sums[1].copy(), sums[2].copy(), sums[3].copy()
        nested, several = used & self.nested, used.sum(axis=1) > 1
        any_thread = np.zeros((3, len(used)), dtype=np.int64)
        if nested.any() or several.any():
            rows = self._rows(group, of_group, used.size)
            threads_n = len(self.nested)
            for group_at, thread in np.argwhere(nested).tolist():
                at = group_at * threads_n + thread
                spans = self._union(rows.between(at, at + 1))
                unions[group_at, thread] = total_length_ns(spans)
                hidden[group_at, thread] = clipped_lengths(
                    spans[:, 0], spans[:, 1], self.busy
                ).sum()
                outside[group_at, thread] = self._outside_ns(spans[:, 0], spans[:, 1]).sum()
            for group_at in np.flatnonzero(several).tolist():
                spans = self._union(rows.between(group_at * threads_n, (group_at + 1) * threads_n))
                any_thread[:, group_at] = (
                    total_length_ns(spans),
                    clipped_lengths(spans[:, 0], spans[:, 1], self.busy).sum(),
                    self._outside_ns(spans[:, 0], spans[:, 1]).sum(),
                )
        alone = np.stack([part.sum(axis=1) for part in (unions, hidden, outside)])
        union_ns, hidden_ns, outside_ns = np.where(several, any_thread, alone)
        return GroupTimes(
            total_ns=totals.sum(axis=1),
            thread_union_ns=unions.sum(axis=1),
            hidden_ns=hidden_ns,
            outside_ns=outside_ns,
            union_ns=union_ns,
            threads_n=used.sum(axis=1).astype(np.int64),
        )

    def _rows(self, group: IntArray, of_group: IntArray | None, pairs_n: int) -> _Sorted:
        selected = self._groups(group, slice(None))
        selected = selected if of_group is None else of_group[selected]
        return _Sorted(selected * len(self.nested) + self.thread, pairs_n)

    def _outside_ns(self, start_ns: IntArray, end_ns: IntArray) -> IntArray:
        """Return the part of each interval before the GPU's first and after its last operation."""
        if not len(self.busy):
            return end_ns - start_ns
        first_ns, last_ns = int(self.busy[0, 0]), int(self.busy[-1, 1])
        before_ns = np.minimum(end_ns, first_ns) - np.minimum(start_ns, first_ns)
        return before_ns + np.maximum(end_ns, last_ns) - np.maximum(start_ns, last_ns)

    def _union(self, rows: npt.NDArray[Any]) -> IntArray:
        return union_intervals(self.start_ns[rows], self.end_ns[rows])


def drained_gaps(spans: IntArray, busy: IntArray, windows: IntArray | None) -> tuple[int, int]:
    """Return how many waits the GPU came out of idle, and how long it stayed so, in ns.

    Such an idle gap begins in a wait and ends after it: the GPU ran out of work, and while it
    stood, the host gave it nothing new. A gap that ends before the wait does was between operations
    that were launched before.

    Args:
        spans: Shape (n, 2), sorted and disjoint: when a thread waited; whole, not cut to windows.
        busy: Shape (m, 2), sorted and disjoint: when the GPU was busy; gaps are between them.
        windows: Shape (k, 2), sorted and disjoint; None: all time. A gap counts if it begins in
            one, with its time inside of them.
    """
    starts, ends = busy[:-1, 1], busy[1:, 0]
    if windows is not None:
        there = starts_inside(starts, windows)
        starts, ends = starts[there], ends[there]
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
    """Return for each thread whether any of its calls starts before an earlier one ended."""
    nested = np.zeros(threads_n, dtype=bool)
    rows = _Sorted(thread, threads_n)
    for index in range(threads_n):
        selected = rows.between(index, index + 1) if threads_n > 1 else slice(None)
        starts, ends = start_ns[selected], end_ns[selected]
        if (starts[1:] < starts[:-1]).any():
            order = np.lexsort((ends, starts))
            starts, ends = starts[order], ends[order]
        nested[index] = bool((starts[1:] < ends[:-1]).any())
    return nested
