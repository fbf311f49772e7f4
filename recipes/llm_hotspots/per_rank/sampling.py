"""Values sampled at a steady rate, averaged over the time of what ran meanwhile. Pure numpy."""

from __future__ import annotations

import numpy as np

from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray, clip_to_windows


def sample_windows(at_ns: IntArray) -> IntArray:
    """Return the time that each sample speaks of: from one sampling period before it up to it.

    The period is the median distance. After a pause, where samples were lost, a sample speaks of
    one period as well; the first one has none before it, and gets one period, too.

    Args:
        at_ns: Shape (n,), ascending, each once.

    Returns:
        Shape (n, 2), sorted and disjoint; shape (0, 2) for fewer than two samples, which do not
        tell a period.
    """
    if at_ns.size < 2:
        return np.empty((0, 2), dtype=np.int64)
    distance = np.diff(at_ns)
    period = int(np.sort(distance)[distance.size // 2])
    starts = at_ns - np.concatenate(([period], np.minimum(distance, period)))
    return np.column_stack((starts, at_ns))


def overlaps(
    start_ns: IntArray, end_ns: IntArray, group: IntArray, windows: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return how long each group ran in each window.

    Args:
        start_ns: Shape (n,), intervals in any order; those that overlap count each.
        end_ns: Shape (n,).
        group: Shape (n,), codes from 0.
        windows: Shape (m, 2), sorted and disjoint.

    Returns:
        Group, window and ns of each pair that meets, ordered by group, then window.
    """
    owner, starts, ends = clip_to_windows(start_ns, end_ns, windows)
    if owner.size == 0:
        return owner, owner, owner
    window = np.searchsorted(windows[:, 1], starts, side="right")
    key = group[owner] * len(windows) + window
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    shared_ns = np.add.reduceat((ends - starts)[order], first)
    real = shared_ns > 0
    return (
        (key[first] // len(windows))[real],
        (key[first] % len(windows))[real],
        shared_ns[real],
    )


def weighted_sums(
    group: IntArray, window: IntArray, shared_ns: IntArray, value: IntArray, groups_n: int
) -> IntArray:
    """Return the sum of value times shared ns of each group, shape (groups_n,).

    Args:
        group: Shape (k,), as `overlaps` gives it.
        window: Shape (k,), likewise.
        shared_ns: Shape (k,), likewise.
        value: Shape (m,), one a window; small enough that no sum outgrows 64 bits.
        groups_n: Number of groups.
    """
    return summed(group, value[window] * shared_ns, groups_n)
