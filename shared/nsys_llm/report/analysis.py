"""What a recipe is made of: the functions that a run calls, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

import pandas as pd

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.timeline.step_lanes import KeptRanks
from nsys_llm.job.partial import Partial
from nsys_llm.report.findings import Finding
from nsys_llm.report.outputs import Cells
from nsys_llm.report.records import Tables
from nsys_llm.report.rules import Rule
from nsys_llm.report.screen import Screen
from nsys_llm.trace.identity import Rank

Kept = TypeVar("Kept", bound=Partial[Any])
Results = TypeVar("Results")
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Analysis(Generic[Kept, Results]):
    """The functions of one recipe; its module `analysis` holds them under the name `ANALYSIS`.

    `map_rank` runs on a worker, the others once, in the process that was started.

    Attributes:
        partial: What a rank is reduced to; without arguments, of no rank.
        map_rank: Reduces one rank to a partial, by the options in its view; no I/O.
        tabulate: Makes the recipe's own tables of the merged partial, by their names in its
            manifest; one that is made of other recipes, of their results. The ranks are those with
            GPU work, in order; of a recipe that compares, all.
        findings: What stands out in the tables, in no order.
        answer: The recipe's question answered in two sentences, from its tables and `findings`.
        caveats: What to know before reading the recipe's numbers, as prose.
        screen: What an overview shows of it on its first screen, and of the overview itself, from
            all tables; None for nothing.
        timeline: Makes the tables of what ranks did in windows that only the other tables tell, of
            what `tabulate` gets, all tables but findings, and the ranks that were kept; None for
            most recipes.
    """

    partial: type[Kept]
    map_rank: Callable[[RankView], Kept]
    tabulate: Callable[[Results, Sequence[Rank], Options], Mapping[str, Cells]]
    findings: Callable[[Tables], list[Finding]]
    answer: Callable[[Tables], str]
    caveats: Callable[[Tables], list[str]]
    screen: Callable[[Tables], Screen | None] | None = None
    timeline: (
        Callable[[Results, Sequence[Rank], Tables, Options, KeptRanks], dict[str, pd.DataFrame]]
        | None
    ) = None


def load_analysis(recipe: str) -> Analysis[Any, Any]:
    """Import the analysis of a recipe by name, so that nothing here depends on any recipe."""
    analysis: Analysis[Any, Any] = import_module(f"nsys_llm.recipes.{recipe}.analysis").ANALYSIS
    return analysis


def load_rules(recipe: str) -> Mapping[str, Rule]:
    """Return what the findings of a recipe say, by the id of the rule."""
    rules: Mapping[str, Rule] = import_module(f"nsys_llm.recipes.{recipe}.findings.texts").RULES
    return rules
