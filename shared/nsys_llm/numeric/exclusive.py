"""Time that intervals share, split among them. Pure: numpy in, numpy out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.grouping import sorted_distinct, summed
from nsys_llm.numeric.intervals import IntArray, clip_to_windows

#: So many intervals are looked at together.
_BLOCK: Final = 1 << 18


def exclusive_ns(
    start_ns: IntArray,
    end_ns: IntArray,
    tie_break: npt.NDArray[Any],
    since_ns: IntArray | None = None,
) -> IntArray:
    """Split the time that intervals share among them, so that the shares add up to the union.

    A segment of dt ns that k intervals cover gives each `dt // k`; the remainder goes to the one
    that started earliest. Equal starts are ordered by `since_ns`, end, then by `tie_break`.

    Args:
        start_ns: Shape (n,), in any order.
        end_ns: Shape (n,), `end_ns >= start_ns`.
        tie_break: Shape (n,), integers, makes the outcome independent of the order of rows.
        since_ns: Shape (n,), when each really started, where `start_ns` was cut to a window.

    Returns:
        Shape (n,), each at most the interval's length; the sum equals the union's length exactly.
    """
    shares = end_ns - start_ns
    since_ns = start_ns if since_ns is None else since_ns
    for rows in _overlapping(start_ns, end_ns):
        shares[rows] = _split(start_ns[rows], end_ns[rows], tie_break[rows], since_ns[rows])
    return shares


def exclusive_in_windows(
    start_ns: IntArray, end_ns: IntArray, tie_break: npt.NDArray[Any], windows: IntArray | None
) -> IntArray:
    """Return the shares of intervals in the time inside windows; see `exclusive_ns`.

    Args:
        windows: Shape (m, 2), sorted and disjoint; None for all time. The others as there.
    """
    if windows is None:
        return exclusive_ns(start_ns, end_ns, tie_break)
    owner, begins, stops = clip_to_windows(start_ns, end_ns, windows)
    pieces_ns = exclusive_ns(begins, stops, tie_break[owner], start_ns[owner])
    return summed(owner, pieces_ns, start_ns.size)


def _overlapping(start_ns: IntArray, end_ns: IntArray) -> Iterator[IntArray]:
    """Yield the rows that overlap others, in order of their starts; few at most on one stream.

    They come some at a time, with all that overlap each other, which then stay in the cache.
    """
    order = np.argsort(start_ns, kind="stable") if (start_ns[1:] < start_ns[:-1]).any() else None
    first, size = 0, _BLOCK
    while first < start_ns.size:
        until = min(first + size, start_ns.size)
        rows = np.arange(first, until) if order is None else order[first:until]
        starts, reach = start_ns[rows], np.maximum.accumulate(end_ns[rows])
        # Which of them, and of what comes behind them, begin when all before have ended.
        apart = np.concatenate(([True], starts[1:] >= reach[:-1], [until == start_ns.size]))
        whole_n = int(np.flatnonzero(apart)[-1])
        together = ~(apart[:whole_n] & apart[1 : whole_n + 1])
        if together.any():
            yield rows[:whole_n][together]
        first, size = first + whole_n, _BLOCK if whole_n else 2 * size


def _split(
    start_ns: IntArray, end_ns: IntArray, tie_break: npt.NDArray[Any], since_ns: IntArray
) -> IntArray:
    """Return the shares of intervals in order of their starts; see `exclusive_ns`."""
    order = np.arange(start_ns.size)
    if (start_ns[1:] == start_ns[:-1]).any():
        order = np.lexsort((tie_break, end_ns, since_ns, start_ns))
    starts, ends = start_ns[order], end_ns[order]
    bounds = sorted_distinct(np.concatenate((starts, ends)))
    first, last = np.searchsorted(bounds, starts), np.searchsorted(bounds, ends)
    change = np.bincount(first, minlength=bounds.size) - np.bincount(last, minlength=bounds.size)
    active_n = np.cumsum(change)[:-1]
    length = np.diff(bounds)
    each, rest = np.divmod(length, np.maximum(active_n, 1))
    before = np.concatenate(([0], np.cumsum(np.where(active_n > 0, each, 0))))
    shares = np.empty_like(start_ns)
    shares[order] = before[last] - before[first]
    # The earliest started interval that is active at t is the first one whose end is beyond t.
    odd = np.flatnonzero((rest > 0) & (active_n > 1))
    earliest = np.searchsorted(np.maximum.accumulate(ends), bounds[odd], side="right")
    np.add.at(shares, order[earliest], rest[odd])
    return shares
