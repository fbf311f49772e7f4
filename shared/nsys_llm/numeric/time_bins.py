"""Time cut into equal parts, and scales of durations. Pure numpy, integers only."""

from __future__ import annotations

import math

import numpy as np

from nsys_llm.numeric.intervals import IntArray


def bin_edges(start_ns: int, end_ns: int, most_n: int) -> IntArray:
    """Return the edges of at most `most_n` parts of [start, end), none of them empty.

    Returns:
        Shape (parts + 1,), ascending; lengths differ by at most 1 ns. One part of no length where
        the span has none.
    """
    length = max(end_ns - start_ns, 0)
    parts = max(min(most_n, length), 1)
    nth = np.arange(parts + 1, dtype=np.int64)
    # Quotient and rest apart: their product with the whole length could outgrow 64 bits.
    each, rest = divmod(length, parts)
    return start_ns + nth * each + nth * rest // parts


def span_quarters(start_ns: int, end_ns: int) -> IntArray:
    """Return the ends of the four quarters of a span, shape (4,)."""
    return bin_edges(start_ns, max(end_ns, start_ns + 4), 4)[1:]


def log_edges(highest: int) -> IntArray:
    """Return ascending integers from 0, four to an octave, the last above `highest`.

    They are 0 and the whole parts of 2^(k/4), each once: 0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 16.
    """
    edges = [0]
    k = 0
    while edges[-1] <= highest:
        edge = _fourth_root(1 << k)
        if edge > edges[-1]:
            edges.append(edge)
        k += 1
    return np.array(edges, dtype=np.int64)


def _fourth_root(value: int) -> int:
    """Return the whole part of the fourth root, exactly."""
    return math.isqrt(math.isqrt(value))
