"""Time cut into equal parts. Pure numpy, integers only."""

from __future__ import annotations

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
