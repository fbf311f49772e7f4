"""Sums by two codes, of which most are 0."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nsys_llm.numeric.intervals import IntArray


def none() -> IntArray:
    """Return no value, shape (0,)."""
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class SparseSums:
    """Sums by two codes; all of shape (n,), int64, in order.

    Attributes:
        row: First code.
        column: Second code.
        total: The sum, not 0.
    """

    row: IntArray = field(default_factory=none)
    column: IntArray = field(default_factory=none)
    total: IntArray = field(default_factory=none)

    @classmethod
    def of(cls, table: IntArray) -> SparseSums:
        """Return what is not 0 in an array of shape (rows, columns)."""
        row, column = np.nonzero(table)
        return cls(row.astype(np.int64), column.astype(np.int64), table[row, column])
