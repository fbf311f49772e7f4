"""What ranks call a step, and which steps are warm-up: one choice for those of a group. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nsys_llm.trace.outcomes import MapResult, ProfileOutcome
from nsys_llm.trace.steps import AGREED, StepKind, warmup_n

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class CommonStep(Generic[Key]):
    """The choice of a group of ranks.

    Attributes:
        name: See `StepSpans`.
        others: What each rank calls a step that finds another one, or None where it finds none:
            such ranks are in no statistic of steps.
        warmup_n: How many of the first steps are warm-up, of all other ranks.
    """

    name: str
    unit: str
    others: Mapping[Key, str | None]
    warmup_n: int


def common_step(ranks: Mapping[Key, StepKind | None]) -> CommonStep[Key] | None:
    """Return the kind of step that most ranks find; None where none finds any.

    Of two that as many find, the one with more steps, then the first by name.
    """
    # One name may be found in two ways, by chance of what else a rank holds.
    votes: dict[tuple[str, str], list[int]] = {}
    for kind in ranks.values():
        if kind is not None:
            votes.setdefault((kind.name, kind.unit), []).append(kind.steps_n)
    if not votes:
        return None
    name, unit = min(votes, key=lambda key: (-len(votes[key]), -sum(votes[key]), key))
    others = {
        rank: None if kind is None else kind.name
        for rank, kind in ranks.items()
        if kind is None or (kind.name, kind.unit) != (name, unit)
    }
    begins = [kind.begin for rank, kind in ranks.items() if kind and rank not in others]
    return CommonStep(name, unit, others, warmup_n(begins))


def steps_of_groups(
    ranks: Mapping[Key, StepKind | None], group_of: Mapping[Key, int]
) -> dict[Key, CommonStep[Key]]:
    """Return what each rank calls a step whose group calls it so too; none of other ranks."""
    found: dict[Key, CommonStep[Key]] = {}
    for group in sorted(set(group_of.values())):
        kinds = {rank: kind for rank, kind in ranks.items() if group_of[rank] == group}
        if (common := common_step(kinds)) is not None:
            found |= {rank: common for rank in kinds if rank not in common.others}
    return found


def with_agreed_warmup(
    mapped: Callable[[Mapping[str, Any]], MapResult], options: Mapping[str, Any]
) -> tuple[MapResult, Mapping[str, Any]]:
    """Map ranks, and once more where they differ in which steps are warm-up; return the options.

    So that every recipe leaves out the same steps of all ranks. Few jobs are read twice.
    """
    result = mapped(options)
    if agreed := _agreed_warmup(result.profiles):
        options = {**options, AGREED: agreed}
        result = mapped(options)
    return result, options


def _agreed_warmup(profiles: Iterable[ProfileOutcome]) -> Mapping[str, tuple[str, int]]:
    sides: dict[str, dict[Hashable, StepKind | None]] = {}
    for rank in (rank for profile in profiles for rank in profile.ranks):
        sides.setdefault(rank.key.side, {})[rank.key] = rank.wall.step
    agreed = {}
    for side, ranks in sides.items():
        if (job := common_step(ranks)) is not None:
            begins = [kind.begin for rank, kind in ranks.items() if kind and rank not in job.others]
            if {warmup_n([begin]) for begin in begins} != {job.warmup_n}:
                agreed[side] = job.name, job.warmup_n
    return agreed
