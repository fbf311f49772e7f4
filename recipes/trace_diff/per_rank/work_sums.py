"""Sums of operations by the work of their step and by what they are, of which most are 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray


def none() -> IntArray:
    """Return no value, shape (0,)."""
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class WorkSums:
    """Sums by work and by a second code; int64, in order of both.

    Attributes:
        work: Shape (n,), position in `StepWalls.works`.
        key: Shape (n,), the second code.
        sums: Shape (n, columns), of which not all are 0.
    """

    work: IntArray = field(default_factory=none)
    key: IntArray = field(default_factory=none)
    sums: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))

    @classmethod
    def counted(
        cls, work: IntArray, key: IntArray, keys_n: int, columns: Sequence[IntArray]
    ) -> WorkSums:
        """Count operations, and add up what else is known of them.

        Args:
            work: Shape (operations,), -1 for those of no step.
            key: Shape (operations,), below `keys_n`.
            keys_n: How many keys there are.
            columns: Each of shape (operations,).
        """
        works_n = int(work.max(initial=-1)) + 1
        code = (work * keys_n + key)[work >= 0]
        sums = [exact_sums(code, column[work >= 0], works_n * keys_n) for column in columns]
        counts = np.bincount(code, minlength=works_n * keys_n).astype(np.int64)
        return cls.of(np.stack([counts, *sums], axis=1).reshape(works_n, keys_n, len(columns) + 1))

    @classmethod
    def of(cls, table: IntArray) -> WorkSums:
        """Return what is not 0 in an array of shape (works, keys, columns)."""
        work, key = np.nonzero(table.any(axis=2))
        return cls(work.astype(np.int64), key.astype(np.int64), table[work, key])
