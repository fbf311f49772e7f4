"""Integers and value counts under keys, which add up over parts whatever keys each of them has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import coded, joined, summed
from nsys_llm.numeric.intervals import IntArray

#: Texts that are a key together.
Texts = tuple[str, ...]


@dataclass(frozen=True)
class ByKey:
    """What is known of some keys: texts, integers, or tuples of them.

    Attributes:
        keys: Sorted, each once.
        sums: By name, of shape (keys,).
        counts: How often which value; groups are positions in `keys`.
    """

    keys: tuple[Any, ...] = ()
    sums: Mapping[str, IntArray] = field(default_factory=dict)
    counts: ValueCounts = field(default_factory=ValueCounts.empty)

    @classmethod
    def of(cls, keys: Sequence[Any], sums: Mapping[str, IntArray]) -> ByKey:
        """Add up rows by key; keys may come in any order and more than once."""
        used, row = coded(keys)
        return cls(used, {name: summed(row, values, len(used)) for name, values in sums.items()})

    @classmethod
    def merge(cls, parts: Sequence[ByKey]) -> ByKey:
        """Add up. Associative and commutative; the identity has no keys, and no columns."""
        filled = [part for part in parts if part.keys]
        return filled[0] if len(filled) == 1 else cls.placed(filled)[0]

    @classmethod
    def placed(cls, parts: Sequence[ByKey]) -> tuple[ByKey, list[IntArray]]:
        """Add up parts with equal columns; return also where the keys of each are then."""
        if not parts:
            return cls(), []
        keys, row = coded([key for part in parts for key in part.keys])
        rows = np.split(row, np.cumsum([len(part.keys) for part in parts])[:-1])
        counts = [
            ValueCounts(place[part.counts.group], part.counts.value, part.counts.count)
            for part, place in zip(parts, rows, strict=True)
        ]
        sums = {
            name: summed(row, joined([part.sums[name] for part in parts]), len(keys))
            for name in parts[0].sums
        }
        return cls(keys, sums, ValueCounts.merge(counts)), rows

    def __getitem__(self, name: str) -> IntArray:
        """Return a sum of each key, shape (keys,)."""
        return self.sums[name] if self.keys else np.empty(0, dtype=np.int64)

    def rows(self) -> dict[Any, tuple[int, ...]]:
        """Return all sums of each key."""
        columns = (values.tolist() for values in self.sums.values())
        return dict(zip(self.keys, zip(*columns, strict=True), strict=True))
