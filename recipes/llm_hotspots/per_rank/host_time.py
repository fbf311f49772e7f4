"""Time that threads spend in calls: summed, as unions, and beside what the GPU did. Pure numpy.

A thread is in one call at a time, unless calls nest. So the sum over a thread's calls is its union,
and only calls that nest, or of several threads, are united.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.blocks import small_blocks
from nsys_llm.numeric.grouping import distinct_codes, rows_by_code, split_by_code
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    clipped_lengths,
    union_intervals,
)


@dataclass(frozen=True)
class GroupTimes:
    """Time in the calls of each group; all of shape (groups,), int64 ns unless said otherwise.

    Attributes:
        union_ns: Time with at least one thread in such a call.
        hidden_ns: Part of `union_ns` while the GPU was busy.
        outside_ns: Part of `union_ns` before the GPU's first and after its last operation.
        threads_n: Threads with such a call, a count.
    """

    total_ns: IntArray
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
        group: Code of what they are added up by, from 0.
        thread: Code of its thread, from 0.
        nested: Shape (threads,), bool: whether calls of the thread overlap.
        busy: Shape (n, 2), sorted, disjoint: when the GPU was busy.
    """

    start_ns: IntArray
    end_ns: IntArray
    group: IntArray
    thread: IntArray
    nested: npt.NDArray[np.bool_]
    busy: IntArray

    @classmethod
    def of(
        cls,
        start_ns: IntArray,
        end_ns: IntArray,
        group: IntArray,
        thread: IntArray,
        busy: IntArray,
        windows: IntArray | None,
    ) -> HostTime:
        """Cut calls to windows.

        Args:
            start_ns: Shape (n,), in any order.
            end_ns: Shape (n,), `end_ns >= start_ns`.
            group: Shape (n,), codes from 0.
            thread: Shape (n,), any id.
            busy: Shape (m, 2), sorted and disjoint.
            windows: Shape (k, 2), sorted and disjoint; None: all time.
        """
        threads, code = distinct_codes(thread)
        if windows is not None:
            owner, start_ns, end_ns = clip_to_windows(start_ns, end_ns, windows)
            group, code = group[owner], code[owner]
        nested = _nested(start_ns, end_ns, code, len(threads))
        return cls(start_ns, end_ns, group, code, nested, busy)

    def by_groups(self, of_group: IntArray, sets_n: int) -> tuple[GroupTimes, GroupTimes]:
        """Add the time of calls up by group, and by sets of groups.

        Args:
            of_group: Shape (groups,), the set of each group, a code from 0.
        """
        sums = self._sums(len(of_group))
        members = [np.flatnonzero(of_group == index) for index in range(sets_n)]
        of_sets = np.stack([sums[:, rows].sum(axis=1) for rows in members], axis=1)
        return self._united(sums), replace(self, group=of_group[self.group])._united(of_sets)

    def _sums(self, groups_n: int) -> IntArray:
        """Return calls, time, hidden and outside time by group and thread, as calls add up.

        Returns:
            Shape (4, groups, threads).
        """
        threads_n = len(self.nested)
        sums = np.zeros((4, groups_n * threads_n), dtype=np.int64)
        for block in small_blocks(self.start_ns.size):
            starts, ends = self.start_ns[block], self.end_ns[block]
            pair = self.group[block] * threads_n + self.thread[block]
            np.add.at(sums[0], pair, 1)
            for sum_of, times in zip(sums[1:], self._times(starts, ends), strict=True):
                np.add.at(sum_of, pair, times)
        return sums.reshape(4, groups_n, threads_n)

    def _times(self, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return length, hidden and outside time of intervals."""
        length_ns = ends - starts
        if not len(self.busy):
            return length_ns, np.zeros_like(length_ns), length_ns
        first_ns, last_ns = int(self.busy[0, 0]), int(self.busy[-1, 1])
        before_ns = np.minimum(ends, first_ns) - np.minimum(starts, first_ns)
        after_ns = np.maximum(ends, last_ns) - np.maximum(starts, last_ns)
        return length_ns, clipped_lengths(starts, ends, self.busy), before_ns + after_ns

    def _united(self, sums: IntArray) -> GroupTimes:
        """Return times of groups by their sums, or the union where calls run at the same time."""
        used, times = sums[0] > 0, sums[1:].sum(axis=2)
        total_ns = times[0].copy()
        beside = (used & self.nested).any(axis=1) | (used.sum(axis=1) > 1)
        rows = split_by_code(self.group, len(used)) if beside.any() else []
        for group in np.flatnonzero(beside).tolist():
            spans = union_intervals(self.start_ns[rows[group]], self.end_ns[rows[group]])
            times[:, group] = [part.sum() for part in self._times(spans[:, 0], spans[:, 1])]
        union_ns, hidden_ns, outside_ns = times
        return GroupTimes(total_ns, hidden_ns, outside_ns, union_ns, used.sum(axis=1))


def _nested(
    start_ns: IntArray, end_ns: IntArray, thread: IntArray, threads_n: int
) -> npt.NDArray[np.bool_]:
    """Return for each thread whether any of its calls starts before an earlier one ended."""
    nested = np.zeros(threads_n, dtype=bool)
    for index, rows in enumerate(rows_by_code(thread, threads_n)):
        starts, ends = start_ns[rows], end_ns[rows]
        if (starts[1:] < starts[:-1]).any():
            order = np.lexsort((ends, starts))
            starts, ends = starts[order], ends[order]
        nested[index] = bool((starts[1:] < ends[:-1]).any())
    return nested
