"""Launches that a thread makes for another one, as PyTorch's autograd threads do. Pure.

The conditions stand in `docs/nvtx_phase_attribution.md`; the thread whose range launches are given
to is the holder. All that another thread launches between two CUDA calls of the holder lies in that
range, and all that it launches in that range between those two calls; at least three launches.
What it does between calls of the holder is a turn if the holder launched a kernel since it was last
active, and it rested before and after for longer than ever in between. The holder waits if, for at
least three quarters of what lies between its two calls in the range, others launch: a loader that
waits for room in a queue, and then prepares its next batch, does not. All limits are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.numeric.grouping import distinct_codes, distinct_rows, split_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table

#: Fewer launches between two calls of the other thread may be there by chance.
_LEAST_LAUNCHES: Final = 3
#: A holder launches at least one kernel for so many of the other thread; forward and backward pass
#: of PyTorch have about 1 to 2. A thread that only watches launches none, or a few in all.
_MOST_PER_KERNEL: Final = 20
#: Of the stretches between calls of the holder, so many of so many are turns. A first backward
#: pass may stop for longer than the steps rest, to load kernels; later ones do not.
_LEAST_IN_TURNS: Final = (2, 3)

#: A thread launches for so many others at most, those with most of its launches; PyTorch's threads
#: of one device each for the few that call `backward()`.
_MOST_HOLDERS: Final = 32

#: The other threads launch for at least so many of so many parts of the holder's wait.
_LEAST_OF_WAIT: Final = (3, 4)

_NEVER_NS: Final = int(np.iinfo(np.int64).max)
_Mask = npt.NDArray[np.bool_]


def delegated(tree: NvtxTree, calls: Table, launch_row: IntArray, kernel_row: IntArray) -> IntArray:
    """Return the range for which each operation was launched by another thread, or -1.

    Args:
        calls: Columns start_ns, end_ns and global_tid.
        launch_row: Shape (n,), rows of the calls; none of them lies in a range of its own thread.
        kernel_row: Shape (kernels,), rows of the calls that launched kernels or graphs; -1 is none.

    Returns:
        Shape (n,), positions in the tree.
    """
    if not launch_row.size or not tree.threads.size:
        return np.full(launch_row.shape, -1, dtype=np.int64)
    used, of_op = np.unique(launch_row, return_inverse=True)
    order = np.lexsort((calls["start_ns"][used], calls["global_tid"][used]))
    at_ns, tid = calls["start_ns"][used[order]], calls["global_tid"][used[order]]
    piece, holder = _only_open(tree, at_ns)
    kernel_calls = kernel_row[kernel_row >= 0]
    kernel_ns = _ByThread.of(calls["global_tid"][kernel_calls], calls["start_ns"][kernel_calls])
    every_call = _ByThread.of(calls["global_tid"], np.arange(len(calls)))
    held_ns = _ByThread.of(holder, at_ns)
    sure = np.zeros(piece.shape, dtype=bool)
    launches = _ByThread.of(tid, np.arange(tid.size))
    for other in launches.threads.tolist():
        rows = launches.values(other)
        most = len(kernel_ns.values(other)) / _MOST_PER_KERNEL
        for code in _holders(holder[rows]):
            thread = int(tree.threads[code])
            thread_kernel_ns = kernel_ns.values(thread)
            if not thread_kernel_ns.size or thread_kernel_ns.size < most:
                continue
            held = np.where(holder[rows] == code, piece[rows], -1)
            thread_calls = _in_order(calls, every_call.values(thread))
            turns = _Turns.of(at_ns[rows], held, thread_calls, tree)
            sure[rows] |= turns.given(np.sort(thread_kernel_ns), np.sort(held_ns.values(code)))
    range_of = np.empty_like(piece)
    range_of[order] = np.where(sure, piece, -1)
    return range_of[of_op]


@dataclass(frozen=True)
class _ByThread:
    """Values by thread: those of `threads[k]`, which are sorted, are `parts[k]`."""

    threads: IntArray
    parts: Sequence[IntArray]

    @classmethod
    def of(cls, thread: IntArray, values: IntArray) -> _ByThread:
        threads, code = distinct_codes(thread)
        return cls(threads, [values[rows] for rows in split_by_code(code, threads.size)])

    def values(self, thread: int) -> IntArray:
        """Return the values of a thread, which may have none."""
        place = int(np.searchsorted(self.threads, thread))
        known = place < self.threads.size and self.threads[place] == thread
        return self.parts[place] if known else self.threads[:0]


def _holders(holder: IntArray) -> list[int]:
    """Return the holders of enough launches of a thread, those with most launches first."""
    codes, launches_n = np.unique(holder[holder >= 0], return_counts=True)
    order = np.argsort(-launches_n, kind="stable")[:_MOST_HOLDERS]
    return [int(code) for code in codes[order[launches_n[order] >= _LEAST_LAUNCHES]]]


def _in_order(calls: Table, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the starts of a thread's calls in order, and until when it was in any call by then."""
    starts, ends = calls["start_ns"][rows], calls["end_ns"][rows]
    order = np.argsort(starts, kind="stable")
    return starts[order], np.maximum.accumulate(ends[order])


def _only_open(tree: NvtxTree, at_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the innermost range, and its thread, where one thread alone has one; else -1."""
    outer = np.flatnonzero(tree.parent[: tree.pushed_n] < 0)
    code = tree.thread[outer].astype(np.int64)
    # Outermost ranges of a thread do not overlap: codes of those that are open add up to the
    # holder's where one is.
    open_n, codes = np.zeros(at_ns.shape, dtype=np.int64), np.zeros(at_ns.shape, dtype=np.int64)
    for edge_ns, sign in ((tree.start_ns[outer], 1), (tree.end_ns[outer], -1)):
        order = np.argsort(edge_ns, kind="stable")
        past_n = np.searchsorted(edge_ns[order], at_ns, side="right")
        open_n += sign * past_n
        codes += sign * np.concatenate(([0], np.cumsum(code[order])))[past_n]
    holder = np.where(open_n == 1, codes, -1)
    return tree.innermost(holder, at_ns), holder


@dataclass(frozen=True)
class _Turns:
    """Launches of one thread in order of time, cut at the calls of the holder into turns.

    Attributes:
        held: Shape (n,), the holder's range, -1 where it has none or is not the only one.
        first: Shape (turns,), position of the first launch of each.
        whole: Shape (turns,), bool: the holder calls CUDA before it and after it.
        free_ns: Shape (turns,), when the holder was out of its calls before it, or later, when its
            range began.
        until_ns: Shape (turns,), when its next call began, or earlier, when its range ended.
    """

    at_ns: IntArray
    held: IntArray
    turn: IntArray
    first: IntArray
    whole: _Mask
    free_ns: IntArray
    until_ns: IntArray

    @classmethod
    def of(
        cls, at_ns: IntArray, held: IntArray, calls: tuple[IntArray, IntArray], tree: NvtxTree
    ) -> _Turns:
        """Cut at the holder's calls (`_in_order`); one at the instant of a launch is before it."""
        starts, ends = calls
        before_n = np.searchsorted(starts, at_ns, side="right")
        first = np.flatnonzero(np.diff(before_n, prepend=-1))
        turn = np.repeat(np.arange(first.size), np.diff(first, append=at_ns.size))
        whole = (before_n[first] > 0) & (before_n[first] < starts.size)
        called_n, piece = before_n[first], held[first]
        free_ns = np.append(ends, _NEVER_NS)[called_n - 1]
        until_ns = np.append(starts, _NEVER_NS)[called_n]
        return cls(
            at_ns,
            held,
            turn,
            first,
            whole,
            np.maximum(free_ns, np.where(piece >= 0, tree.start_ns[piece], free_ns)),
            np.minimum(until_ns, np.where(piece >= 0, tree.end_ns[piece], until_ns)),
        )

    def given(self, kernel_ns: IntArray, all_ns: IntArray) -> _Mask:
        """Return which launches the holder gave away.

        Args:
            kernel_ns: Its own kernels, sorted.
            all_ns: Launches of all threads that may be for it, sorted.
        """
        size = np.diff(self.first, append=self.at_ns.size)
        waits = self.whole & (size >= _LEAST_LAUNCHES) & self._in_one_range()
        marked = np.maximum.reduceat(self.held, self.first) >= 0
        waits &= self._waits_for(all_ns)
        in_turns = waits & self._rests() & self._follows(kernel_ns)
        counted_n = int((marked & self.whole).sum())
        least, of = _LEAST_IN_TURNS
        if int(in_turns.sum()) * of < max(counted_n, 1) * least:
            waits[:] = False
        return waits[self.turn]

    def _in_one_range(self) -> _Mask:
        """Return which turns lie in one range in which no other turn lies."""
        low = np.minimum.reduceat(self.held, self.first)
        alone = (low >= 0) & (low == np.maximum.reduceat(self.held, self.first))
        pairs, _ = distinct_rows([self.held, self.turn])
        ranges, turns_n = np.unique(self.held[pairs], return_counts=True)
        return np.asarray(alone & (turns_n[np.searchsorted(ranges, low)] == 1))

    def _waits_for(self, all_ns: IntArray) -> _Mask:
        """Tell in which turns the holder is in no call, and goes on soon after the last launch."""
        # Differences of what is far apart would overflow; such turns are not whole.
        free_ns, until_ns = (
            np.where(self.whole, edge, self.at_ns[self.first])
            for edge in (self.free_ns, self.until_ns)
        )
        first = np.searchsorted(all_ns, free_ns)
        last = np.searchsorted(all_ns, until_ns, side="right") - 1
        spanned_ns = all_ns.take(last, mode="clip") - all_ns.take(first, mode="clip")
        least, of = _LEAST_OF_WAIT
        long = spanned_ns * of >= (until_ns - free_ns) * least
        return np.asarray(self.whole & (free_ns <= self.at_ns[self.first]) & long)

    def _rests(self) -> _Mask:
        """Tell before and after which turns the thread rests longer than ever within them."""
        gap = np.diff(self.at_ns)
        inner = np.append(gap, 0)
        last = np.append(self.first[1:], self.at_ns.size) - 1
        inner[last] = 0
        longest = np.maximum.reduceat(inner, self.first)
        rest = np.concatenate(([_NEVER_NS], gap[self.first[1:] - 1], [_NEVER_NS]))
        return np.asarray(np.minimum(rest[:-1], rest[1:]) > longest)

    def _follows(self, kernel_ns: IntArray) -> _Mask:
        """Tell before which turns the holder launched a kernel since the turn before."""
        before_n = np.searchsorted(kernel_ns, self.at_ns, side="right")
        since_n = before_n[self.first].copy()
        since_n[1:] -= before_n[self.first[1:] - 1]
        return np.asarray(since_n > 0)
