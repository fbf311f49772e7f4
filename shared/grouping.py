"""Codes for distinct values, and exact sums by code. Pure numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys_llm.intervals import IntArray

__all__ = ["distinct", "distinct_codes", "summed"]

# Where ids are dense, a mark for each is 20 times faster than sorting a column of 1M rows.
_ROOM_PER_VALUE = 8
_ROOM = 1 << 20


def distinct(values: IntArray) -> IntArray:
    """Return the distinct values, sorted."""
    seen = _marks(values)
    if seen is None:
        return np.unique(values)
    return np.flatnonzero(seen) + int(values.min())


def distinct_codes(values: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct values, sorted, and each value's position among them."""
    if values.size and (values == values[0]).all():
        return values[:1].copy(), np.zeros_like(values)  # one device, one thread: the common case
    seen = _marks(values)
    if seen is None:
        used, codes = np.unique(values, return_inverse=True)
        return used, codes.astype(np.int64, copy=False)
    low = int(values.min())
    position = np.cumsum(seen) - 1
    return np.flatnonzero(seen) + low, position[values - low]


def summed(codes: IntArray, values: IntArray, codes_n: int) -> IntArray:
    """Return the sum of the values of each code 0 .. codes_n - 1, in integers."""
    sums = np.zeros(codes_n, dtype=np.int64)
    np.add.at(sums, codes, values)
    return sums


def _marks(values: IntArray) -> npt.NDArray[np.bool_] | None:
    """Return which of min .. max occur, or None if that would take too much room."""
    if values.size == 0:
        return None
    low, high = int(values.min()), int(values.max())
    if high - low >= _ROOM_PER_VALUE * values.size + _ROOM:
        return None
    seen = np.zeros(high - low + 1, dtype=bool)
    seen[values - low] = True
    return seen
