"""What the ranks of a job call a step: one choice a run. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from nsys_llm.analyses.steps.steps import Steps

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class StepKind:
    """What one rank found; a part of a partial.

    Attributes:
        name: See `StepSpans`.
    """

    name: str
    unit: str
    source: str
    steps_n: int

    @classmethod
    def of(cls, steps: Steps) -> StepKind:
        """Return the kind of a rank's steps."""
        return cls(steps.name, steps.unit, steps.source, len(steps))


@dataclass(frozen=True)
class JobSteps(Generic[Key]):
    """The choice of a run.

    Attributes:
        name: See `StepSpans`.
        others: What each rank calls a step that finds another one, or None where it finds none:
            such ranks are in no statistic of steps.
    """

    name: str
    unit: str
    source: str
    others: Mapping[Key, str | None]


def job_steps(ranks: Mapping[Key, StepKind | None]) -> JobSteps[Key] | None:
    """Return the kind of step that most ranks find; None where none finds any.

    Of two that as many find, the one with more steps, then the first by name.
    """
    votes: dict[tuple[str, str, str], list[int]] = {}
    for kind in ranks.values():
        if kind is not None:
            votes.setdefault((kind.name, kind.unit, kind.source), []).append(kind.steps_n)
    if not votes:
        return None
    # One name may be found in two ways, by chance of what else a rank holds.
    of_name: dict[tuple[str, str], list[int]] = {}
    for (name, unit, _), counts in votes.items():
        of_name.setdefault((name, unit), []).extend(counts)
    name, unit = min(of_name, key=lambda key: (-len(of_name[key]), -sum(of_name[key]), key))
    source = min(
        (key for key in votes if key[:2] == (name, unit)),
        key=lambda key: (-len(votes[key]), key[2]),
    )[2]
    others = {
        rank: None if kind is None else kind.name
        for rank, kind in ranks.items()
        if kind is None or (kind.name, kind.unit) != (name, unit)
    }
    return JobSteps(name, unit, source, others)
