"""One rank, handed to every recipe."""

from __future__ import annotations

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.steps.of_rank import rank_steps
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import chosen_recipes
from nsys_llm.report.analysis import load_analysis

from ..partials import OverviewPartial


def map_rank(view: RankView) -> OverviewPartial:
    """Return what each recipe keeps of a rank, and its steps."""
    steps = rank_steps(view.trace, view.steps)
    return OverviewPartial(
        {
            recipe: load_analysis(recipe).map_rank(view)
            for recipe in chosen_recipes(load_manifest("llm_overview"), view.options)
        },
        {} if steps is None else {view.key: steps},
    )
