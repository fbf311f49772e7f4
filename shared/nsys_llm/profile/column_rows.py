"""One integer column of a table that is read part by part."""

from __future__ import annotations

import numpy as np

from nsys_llm.numeric.intervals import IntArray


class TooManyRows(Exception):
    """The parts have more rows than the table was said to have."""


class ColumnRows:
    """Puts the parts of a column together; one value throughout stays one, and takes no memory."""

    def __init__(self, most_rows: int) -> None:
        # Memory that is never written to is none.
        self._rows = np.empty(most_rows, dtype=np.int64)
        self._rows_n = 0
        self._constant = True
        self._value = 0

    def add(self, part: IntArray) -> None:
        """Append a part; one of equal values may be a view of that value.

        Raises:
            TooManyRows: There is no room for it.
        """
        if self._rows_n + part.size > self._rows.size:
            raise TooManyRows
        if not part.size:
            return
        first = int(part[0])
        if self._constant and (part.strides != (0,) or (self._rows_n and first != self._value)):
            self._rows[: self._rows_n] = self._value
            self._constant = False
        if self._constant:
            self._value = first
        else:
            self._rows[self._rows_n : self._rows_n + part.size] = part
        self._rows_n += part.size

    def rows(self) -> IntArray:
        """Return all rows, shape (rows,)."""
        if self._constant and self._rows_n:
            return np.broadcast_to(np.int64(self._value), (self._rows_n,))
        return self._rows[: self._rows_n]


def constant_as_view(values: IntArray) -> IntArray:
    """Return the values; of one value throughout, a view of that one."""
    if values.size and values[0] == values[-1] and (values == values[0]).all():
        return np.broadcast_to(values[0], values.shape)
    return values
