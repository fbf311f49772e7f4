"""What a recipe offers, and how it is found by its name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from nsys_llm.report.analysis import Analysis
from nsys_llm.report.rules import Rule


def load_analysis(recipe: str) -> Analysis:
    """Import the analysis of a recipe by name, so that nothing here depends on any recipe."""
    return cast(Analysis, import_module(f"nsys_llm.recipes.{recipe}.analysis"))


def load_rules(recipe: str) -> Mapping[str, Rule]:
    """Import the rules of a recipe's findings by its name."""
    return cast(
        Mapping[str, Rule], import_module(f"nsys_llm.recipes.{recipe}.findings.texts").RULES
    )
