"""The partial of a recipe that keeps each rank by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nsys_llm.trace.identity import RankKey

Part = TypeVar("Part")


@dataclass(frozen=True)
class ByRank(Generic[Part]):
    """What is kept of many ranks."""

    ranks: Mapping[RankKey, Part] = field(default_factory=dict)

    @classmethod
    def merged(cls, parts: Sequence[ByRank[Part]]) -> ByRank[Part]:
        """Join partials of distinct ranks; associative and commutative."""
        return cls(merged_ranks(part.ranks for part in parts))


def merged_ranks(parts: Iterable[Mapping[RankKey, Part]]) -> dict[RankKey, Part]:
    """Return what is kept of all ranks, sorted; no two parts have the same."""
    ranks = {key: rank for part in parts for key, rank in part.items()}
    return {key: ranks[key] for key in sorted(ranks)}
