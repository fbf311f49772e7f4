"""Exact value counts under names, which merge over ranks whatever names each of them has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nsys_llm.numeric.distributions import ValueCounts


@dataclass(frozen=True)
class NamedCounts:
    """How often each value occurred under each name.

    Attributes:
        names: Sorted, each once.
        counts: Its groups are codes into `names`.
    """

    names: tuple[str, ...] = ()
    counts: ValueCounts = field(default_factory=ValueCounts.empty)

    @classmethod
    def merge(cls, parts: Sequence[NamedCounts]) -> NamedCounts:
        """Add counts up. Associative and commutative; the identity has no names."""
        names = tuple(sorted({name for part in parts for name in part.names}))
        code = {name: index for index, name in enumerate(names)}
        counts = [
            ValueCounts(
                np.array([code[name] for name in part.names], dtype=np.int64)[part.counts.group],
                part.counts.value,
                part.counts.count,
            )
            for part in parts
            if part.counts.group.size
        ]
        return cls(names, ValueCounts.merge(counts))
