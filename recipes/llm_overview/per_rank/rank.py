"""One rank, handed to every recipe."""

from __future__ import annotations

from typing import Any

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import chosen_recipes
from nsys_llm.report.analysis import load_analysis


def map_rank(view: RankView) -> dict[str, Any]:
    """Return what each recipe keeps of a rank, by its name."""
    return {
        recipe: load_analysis(recipe).map_rank(view)
        for recipe in chosen_recipes(load_manifest("llm_overview"), view.options)
    }
