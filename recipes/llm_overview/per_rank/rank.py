"""One rank, handed to every recipe."""

from __future__ import annotations

from nsys_llm.facts.rank_view import RankView
from nsys_llm.job.partial import Composite
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import chosen_recipes
from nsys_llm.report.analysis import load_analysis


def map_rank(view: RankView) -> Composite:
    """Return what each recipe keeps of a rank."""
    recipes = chosen_recipes(load_manifest("llm_overview"), view.options)
    return Composite(parts={recipe: load_analysis(recipe).map_rank(view) for recipe in recipes})
