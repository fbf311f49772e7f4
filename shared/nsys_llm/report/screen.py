"""What the first screen of an overview shows ahead of its findings; `first_screen.py` draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from nsys_llm.trace.outcomes import ProfileOutcome
from nsys_llm.view.text import counted

#: By name: ns in a unit.
_UNITS: Final = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


@dataclass(frozen=True)
class Scale:
    """A unit for times of which none is larger than a whole; 1 % of it is seen in it."""

    unit: str
    unit_ns: float
    decimals_n: int

    @classmethod
    def of(cls, whole_ns: float) -> Scale:
        """Return the largest unit that the whole has one of."""
        unit, unit_ns = next(
            (item for item in _UNITS.items() if whole_ns >= item[1]), ("ns", _UNITS["ns"])
        )
        return cls(unit, unit_ns, 2 if whole_ns < 100 * unit_ns else 1)

    def number(self, time_ns: float) -> str:
        """Return a time without its unit."""
        return f"{time_ns / self.unit_ns:.{self.decimals_n}f}"


@dataclass(frozen=True)
class Screen:
    """The facts of a run in one line, and what gains are compared with; of most recipes, less.

    Attributes:
        facts: GPUs, their time, steps: `2 GPUs, 300 ms each, 17 layers, 17.74 ms a layer`.
        whole_ns: A mean step, or where there are none the longest span of a GPU.
        whole: What that is: `a layer`, `of one GPU`.
        trust: The remark on the capture that qualifies most of the rest, as prose; empty if none.
        subject: What was read, by name.
        lines: What recipes tell besides, a line each, as prose.
        verdict: Of a comparison with an earlier run, as prose; empty without one.
        ranks: Those that the whole is of; None where it is of all.
        kernels_bound: What holds the time of kernels, `memory` or `compute`, where it is known.
    """

    facts: str = ""
    whole_ns: float = 0.0
    whole: str = ""
    by_step: bool = False
    trust: str = ""
    subject: str = ""
    verdict: str = ""
    lines: tuple[str, ...] = ()
    ranks: frozenset[int] | None = None
    kernels_bound: str | None = None

    def is_of(self, rank: int | None) -> bool:
        """Return whether the whole is that of a rank, too."""
        return self.ranks is None or rank is None or rank in self.ranks


def subject(profiles: Sequence[ProfileOutcome]) -> str:
    """Return the name of what was read: a report's own, or that of the folder that holds all."""
    if len(profiles) == 1:
        return profiles[0].label
    folders = {PurePath(profile.path).parent for profile in profiles}
    above = folders if len(folders) == 1 else {folder.parent for folder in folders}
    if len(above) == 1 and (name := next(iter(above)).name):
        return name
    return counted(len(profiles), "report")
