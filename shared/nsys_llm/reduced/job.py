"""All ranks of a run beside each other: what its tables are made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nsys_llm.job.collectives.matched import MatchedCollectives, match_collectives
from nsys_llm.job.communication_split import communication_details
from nsys_llm.job.ranks.verdicts import RankVerdict
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.reduced.job_facts import JobFacts
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, IDLE_CAUSES_N
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import WallDetails, Walls, joined_details


@dataclass(frozen=True)
class MatchedOnce:
    """The collectives of all ranks, matched when they are asked for, once for all recipes.

    Attributes:
        ranks: Those with GPU work, in order.
        options: disable_alignment leaves clocks alone.
    """

    facts: JobFacts
    ranks: Sequence[Rank]
    options: Mapping[str, Any]

    @cached_property
    def plain(self) -> MatchedCollectives:
        """Matched by kernels and times."""
        return match_collectives(self.facts.collectives, self.ranks, self.options)

    @cached_property
    def named(self) -> MatchedCollectives:
        """Matched by the communicators, too, that NCCL's calls name."""
        lanes = {
            key: tuple(self.facts.nccl[key].calls.named(lane) for lane in some)
            for key, some in self.facts.collectives.items()
        }
        return match_collectives(lanes, self.ranks, self.options)


@dataclass(frozen=True)
class Job:
    """What was read of a run, as one recipe sees it.

    Attributes:
        facts: The kinds that the recipe needs, of all ranks; none where runs are compared.
        ranks: Those with GPU work, in order; of runs that are compared, all.
        options: Of the recipe.
        kernel_names: All full names of kernels, whatever filters leave: they tell the engine.
        matched: The collectives of all ranks; None where the recipe needs none.
        verdicts: What is told of each GPU beside its peers.
        sides: Of runs that are compared, each by its side.
    """

    facts: JobFacts
    ranks: Sequence[Rank]
    options: Mapping[str, Any]
    kernel_names: frozenset[str] = frozenset()
    matched: MatchedCollectives | None = None
    verdicts: Sequence[RankVerdict] = ()
    sides: Mapping[str, Job] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        facts: JobFacts,
        needs: Collection[str],
        ranks: Sequence[Rank],
        options: Mapping[str, Any],
        kernel_names: frozenset[str],
        met: MatchedOnce,
    ) -> Job:
        """Take from all facts what a recipe needs; names of communicators where it reads these."""
        matched = None
        if "collectives" in needs:
            matched = met.named if "nccl" in needs else met.plain
        return cls(facts.only(needs), ranks, options, kernel_names, matched)

    @property
    def collectives(self) -> MatchedCollectives:
        """The matched collectives, for a recipe that needs them."""
        assert self.matched is not None
        return self.matched

    def wall_details(self, walls: Walls, *, unread: bool) -> WallDetails:
        """Divide classes of the wall split, as far as the recipe knows more of them than all do.

        Args:
            unread: Whether ranks were not read that others may wait for.
        """
        idle_ns = dict(self.facts.idle_causes)
        for key, sums in self.facts.compared.ranks.items():
            known = {(key, it.device_id): it.idle_ns for it in sums.devices}
            idle_ns |= {place: ns for place, ns in known.items() if ns is not None}
        idle = {key: _idle_details(time_ns) for key, time_ns in idle_ns.items()}
        met = self.matched
        communication = {} if met is None else communication_details(met, walls, unread=unread)
        sides = [side.wall_details(walls, unread=unread) for side in self.sides.values()]
        return joined_details([idle, communication, *sides])


def _idle_details(time_ns: IntArray) -> dict[str, dict[str, int]]:
    """Return the idle time of a device by cause, for the wall split.

    Args:
        time_ns: Shape (causes,), the profiler's share among them.
    """
    sums = time_ns[:IDLE_CAUSES_N].tolist()
    return {IDLE: {cause: ns for cause, ns in zip(CAUSE_NAMES, sums, strict=False) if ns}}
