"""One integer column of a table that is read part by part."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

#: What a column may be kept as; ids, sizes and codes seldom need more than half of 8 bytes.
_WIDTHS: Final = (np.int8, np.int16, np.int32, np.int64)


class TooManyRows(Exception):
    """The parts have more rows than the table was said to have."""


class ColumnRows:
    """Puts the parts of a column together, in as few bytes as its values need.

    One value throughout stays one, and takes no memory.
    """

    def __init__(self, most_rows: int) -> None:
        # Memory that is never written to is none.
        self._rows: npt.NDArray[Any] = np.empty(most_rows, dtype=np.int8)
        self._least, self._most = -128, 127
        self._rows_n = 0
        self._constant = True
        self._value = 0

    def add(self, part: IntArray) -> None:
        """Append a part; one of equal values may be a view of that value.

        Raises:
            TooManyRows: There is no room for it.
        """
        if self._rows_n + part.size > self._rows.size:
            raise TooManyRows("more rows than the file says")
        if not part.size:
            return
        first = int(part[0])
        if self._constant and (part.strides != (0,) or (self._rows_n and first != self._value)):
            self._constant = False
            self._fit(self._value, self._value)
            self._rows[: self._rows_n] = self._value
        if self._constant:
            self._value = first
        else:
            if self._rows.itemsize < part.itemsize:
                self._fit(int(part.min()), int(part.max()))
            self._rows[self._rows_n : self._rows_n + part.size] = part
        self._rows_n += part.size

    def _fit(self, low: int, high: int) -> None:
        """Make the rows as wide as these values need."""
        if self._least <= low and high <= self._most:
            return
        widths = (np.iinfo(kind) for kind in _WIDTHS)
        limits = next(width for width in widths if width.min <= low and high <= width.max)
        wider = np.empty(self._rows.size, dtype=limits.dtype)
        wider[: self._rows_n] = self._rows[: self._rows_n]
        self._rows, self._least, self._most = wider, int(limits.min), int(limits.max)

    def rows(self) -> npt.NDArray[Any]:
        """Return all rows, shape (rows,), int64 or narrower."""
        if self._constant and self._rows_n:
            return np.broadcast_to(np.int64(self._value), (self._rows_n,))
        return self._rows[: self._rows_n]


def constant_as_view(values: IntArray) -> IntArray:
    """Return the values; of one value throughout, a view of that one."""
    if values.size and values[0] == values[-1] and (values == values[0]).all():
        return np.broadcast_to(values[0], values.shape)
    return values
