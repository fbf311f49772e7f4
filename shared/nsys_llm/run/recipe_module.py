"""What an analysis module offers, and how it is found by the recipe's name."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from nsys_llm.report.analysis import Analysis


def load_analysis(recipe: str) -> Analysis:
    """Import the analysis of a recipe by name, so that nothing here depends on any recipe."""
    return cast(Analysis, import_module(f"nsys_llm.recipes.{recipe}.analysis"))
