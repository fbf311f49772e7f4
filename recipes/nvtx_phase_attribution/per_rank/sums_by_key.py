"""Sums under keys of texts, which add up over ranks whatever keys each of them has. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray

Key = tuple[str, ...]


@dataclass(frozen=True)
class SumsByKey:
    """Integers by key.

    Attributes:
        sums: By name, of shape (keys,).
    """

    keys: tuple[Key, ...] = ()
    sums: Mapping[str, IntArray] = field(default_factory=dict)

    @classmethod
    def of(cls, keys: Sequence[Key], sums: Mapping[str, IntArray]) -> SumsByKey:
        """Add up rows by key; keys may come in any order and more than once."""
        used = tuple(sorted(set(keys)))
        place = {key: index for index, key in enumerate(used)}
        row = np.array([place[key] for key in keys], dtype=np.int64)
        return cls(used, {name: summed(row, values, len(used)) for name, values in sums.items()})

    @classmethod
    def merge(cls, parts: Sequence[SumsByKey]) -> SumsByKey:
        """Add up. Associative and commutative; the identity has no keys, and no columns."""
        filled = [part for part in parts if part.keys]
        if not filled:
            return cls()
        return cls.of(
            [key for part in filled for key in part.keys],
            {name: np.concatenate([p.sums[name] for p in filled]) for name in filled[0].sums},
        )

    def renamed(self, keys: Sequence[Key]) -> SumsByKey:
        """Return the sums under other keys, one for each; those that become equal are added."""
        return SumsByKey.of(keys, self.sums)
