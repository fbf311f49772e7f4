"""The busiest stretch of a series of instants. Pure numpy."""

from __future__ import annotations

import numpy as np

from nsys_llm.intervals import IntArray

__all__ = ["busiest_window"]


def busiest_window(start_ns: IntArray, length_ns: int) -> tuple[int, int] | None:
    """Return how many instants the fullest window of a length holds, and when it begins.

    A window is half-open and slides freely: some fullest window begins at an instant, so that it is
    enough to try those. Of equally full windows the earliest is taken.

    Args:
        start_ns: Shape (n,), in any order.
        length_ns: Above 0.

    Returns:
        None without instants.
    """
    if start_ns.size == 0:
        return None
    starts = np.sort(start_ns) if (np.diff(start_ns) < 0).any() else start_ns
    held_n = np.searchsorted(starts, starts + length_ns, side="left") - np.arange(starts.size)
    first = int(np.argmax(held_n))
    return int(held_n[first]), int(starts[first])
