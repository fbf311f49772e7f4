"""What ranks send of their collectives: integers and strings, so that merging is exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsys_llm.identity import RankKey
from nsys_llm.intervals import IntArray

__all__ = ["CollectivesPartial", "LaneRows"]


@dataclass(frozen=True)
class LaneRows:
    """Executions of one communication kernel on one stream of one device of one rank.

    Attributes:
        kernel: Demangled name.
        operation: See `nsys_llm.collective_names`.
        start_ns: Of those that start in the window; shape (n,), the report's clock, ascending.
        end_ns: Likewise.
        cut_n: Executions that reach into the window and start before it.
        over_limit_n: Executions left out because the rank has more than `MOST_COLLECTIVES`.
    """

    kernel: str
    operation: str
    device_id: int
    stream_id: int
    start_ns: IntArray
    end_ns: IntArray
    cut_n: int
    over_limit_n: int


@dataclass(frozen=True)
class CollectivesPartial:
    """Communication kernels of many ranks, those without any left out."""

    ranks: Mapping[RankKey, tuple[LaneRows, ...]] = field(default_factory=dict)
