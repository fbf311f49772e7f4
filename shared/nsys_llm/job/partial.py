"""What recipes keep of many ranks: one class, which a recipe that keeps more extends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from nsys_llm.facts.lanes import RankLanes
from nsys_llm.job.collectives.matched import MatchedCollectives, match_collectives
from nsys_llm.job.communication_split import communication_details
from nsys_llm.job.ranks.verdicts import RankVerdict
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.wall import UNREAD_N, WallDetails, Walls

Part = TypeVar("Part")
_Options = Mapping[str, Any]


@dataclass(frozen=True)
class Partial(Generic[Part]):
    """Many ranks, in integers and strings, which merge exactly (`nsys_llm.numeric.stacking`).

    Attributes:
        ranks: What is kept of each.
        matched: The collectives of all ranks, once these are merged, where a recipe keeps them.
        verdicts: What is told of each GPU beside its peers, once that is judged.
    """

    ranks: Mapping[RankKey, Part] = field(default_factory=dict)
    matched: MatchedCollectives | None = field(default=None, kw_only=True)
    verdicts: Sequence[RankVerdict] = field(default=(), kw_only=True)

    def prepared(self, _ranks: Sequence[Rank], _options: _Options) -> Partial[Part]:
        """Return a merged partial with what all tables share; by the ranks with GPU work."""
        return self

    def wall_details(self, _walls: Walls, _options: _Options) -> WallDetails:
        """Divide classes of the table `wall`, as far as it knows more of them than all do."""
        return {}

    def missing_ranges(self, _rank: RankKey) -> Mapping[str, tuple[int, int]] | None:
        """Return what of a rank lies in no NVTX range, operations and ns, by `CoverageRow.op`.

        None: the recipe does not look at ranges.
        """
        return None


@dataclass(frozen=True)
class CommunicationPartial(Partial[Part]):
    """Many ranks, with the times of their communication kernels."""

    lanes: RankLanes = field(default_factory=dict, kw_only=True)

    def match(self, ranks: Sequence[Rank], options: _Options) -> MatchedCollectives:
        """Return the collectives of all ranks, which are matched once."""
        return self.matched or match_collectives(self.lanes, ranks, options)

    def prepared(self, ranks: Sequence[Rank], options: _Options) -> Partial[Part]:
        """Match them, for the wall split and all tables."""
        return replace(self, matched=self.match(ranks, options))

    def wall_details(self, walls: Walls, options: _Options) -> WallDetails:
        """Return waiting and transfer of each device that communicates with others."""
        if self.matched is None:
            return {}
        return communication_details(self.matched, walls, unread=bool(options.get(UNREAD_N)))


@dataclass(frozen=True)
class Composite(Partial[None]):
    """What a recipe keeps that is made of others.

    Attributes:
        parts: The partial of each recipe, by its name; a recipe without a rank is not there.
    """

    parts: Mapping[str, Partial[Any]] = field(default_factory=dict)
