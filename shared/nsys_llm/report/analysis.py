"""What a recipe is made of: its needs, and the functions that a run calls, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

import pandas as pd

from nsys_llm.facts.timeline.step_lanes import KeptRanks
from nsys_llm.report.findings import Finding
from nsys_llm.report.outputs import Cells
from nsys_llm.report.records import Tables
from nsys_llm.report.rules import Rule
from nsys_llm.report.screen import Screen

Asked = TypeVar("Asked")


@dataclass(frozen=True)
class Analysis(Generic[Asked]):
    """One recipe; its module `analysis` holds this under the name `ANALYSIS`.

    All functions are called once, in the process that was started.

    Attributes:
        needs: The kinds of facts that workers compute for it, see `nsys_llm.reduced.job_facts`; one
            that is made of other recipes needs what these need.
        tabulate: Makes the recipe's own tables, by their names in its manifest, of all ranks
            (`nsys_llm.reduced.job.Job`); one that is made of other recipes, of their results.
        findings: What stands out in the tables, in no order.
        answer: The recipe's question answered in two sentences, from its tables and `findings`.
        caveats: What to know before reading the recipe's numbers, as prose.
        screen: What an overview shows of it on its first screen, and of the overview itself, from
            all tables; None for nothing.
        timeline: Makes the tables of what ranks did in windows that only the other tables tell, of
            what `tabulate` gets, all tables but findings, and the ranks that were kept; None for
            most recipes.
    """

    needs: Sequence[str]
    tabulate: Callable[[Asked], Mapping[str, Cells]]
    findings: Callable[[Tables], list[Finding]]
    answer: Callable[[Tables], str]
    caveats: Callable[[Tables], list[str]]
    screen: Callable[[Tables], Screen | None] | None = None
    timeline: Callable[[Asked, Tables, KeptRanks], dict[str, pd.DataFrame]] | None = None


def load_analysis(recipe: str) -> Analysis[Any]:
    """Import the analysis of a recipe by name, so that nothing here depends on any recipe."""
    analysis: Analysis[Any] = import_module(f"nsys_llm.recipes.{recipe}.analysis").ANALYSIS
    return analysis


def load_rules(recipe: str) -> Mapping[str, Rule]:
    """Return what the findings of a recipe say, by the id of the rule."""
    rules: Mapping[str, Rule] = import_module(f"nsys_llm.recipes.{recipe}.findings.texts").RULES
    return rules
