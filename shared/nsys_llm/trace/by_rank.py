"""The partial of a recipe that keeps each rank by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nsys_llm.trace.identity import RankKey

Part = TypeVar("Part")


@dataclass(frozen=True)
class ByRank(Generic[Part]):
    """What is kept of many ranks."""

    ranks: Mapping[RankKey, Part] = field(default_factory=dict)
