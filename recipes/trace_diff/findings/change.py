"""One change as answer and findings tell it, and the words that all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsys_llm.view.text import format_ns, format_percent

from .normalization import Basis
from .texts import LEAST_PCT, STANDS_OUT


@dataclass(frozen=True)
class Clue:
    """One change.

    Attributes:
        rule: Kind of change: more_calls, slower_calls, other_kernels, ...
        impact_ns: Its part of the change, in ns on the basis of the kernels; more is positive.
        text: A clause that stands by itself, names out of the trace in backticks.
        tables: Where the numbers stand; empty for the tables of the rule.
        name: Kernel or category that it is about.
        category: Kind of work.
        stands_out: Whether it is worth a word however little time it is about.
        rank: Rank that it is about.
        sure: Whether it is more than chance, as far as one run can tell.
        brief: The clause as the answer has it; empty where that is the text.
        whole: Of a rank: whether nearly all of the change of all ranks is its own.
        numbers: Numbers that the text names, by name.
    """

    rule: str
    impact_ns: float
    text: str
    tables: tuple[str, ...] = ()
    name: str | None = None
    category: str | None = None
    stands_out: bool = False
    rank: int | None = None
    sure: bool = True
    brief: str = ""
    whole: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)


def changed(ns: float) -> str:
    """Return a change of time with its sign."""
    return f"{'+' if ns > 0 else ''}{format_ns(ns)}"


def times(ratio: float) -> str:
    """Return a ratio of durations as people say it.

    `5.15 times as long`, `12.0 % longer`, `12.0 % less`.
    """
    if ratio >= STANDS_OUT:
        return f"{ratio:.3g} times as long"
    if ratio >= 1:
        return f"{format_percent(100 * (ratio - 1))} longer"
    return f"{format_percent(100 * (1 - ratio))} less"


def ratio_fields(ratio: float) -> dict[str, float]:
    """Return what `times` says, as fields."""
    return {"ratio": ratio, "ratio_pct": 100 * (ratio - 1)}


def count_fields(row: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers of calls of both runs, as fields."""
    return {"baseline_n": float(row["baseline_n"]), "input_n": float(row["input_n"])}


def matters(ns: float, basis: Basis) -> bool:
    """Tell whether an amount is worth a word beside the kernel time."""
    return 100 * abs(ns) >= LEAST_PCT * max(basis.before_ns, basis.after_ns) and ns != 0
