"""One rank, handed to every recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsys_llm.analyses.steps.finder import steps_of
from nsys_llm.analyses.steps.of_rank import rank_steps
from nsys_llm.run.parts import part_names
from nsys_llm.run.worker import load_analysis
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace

from ..partials import OverviewPartial


def map_rank(trace: RankTrace, key: RankKey, options: Mapping[str, Any]) -> OverviewPartial:
    """Return what each recipe keeps of a rank, and its steps.

    Args:
        trace: The rank, with all that any of them reads.
        key: The rank.
        options: Of the overview, which has those of all recipes.
    """
    steps = rank_steps(trace, steps_of(trace, options))
    return OverviewPartial(
        {
            recipe: load_analysis(recipe).map_rank(trace, key, options)
            for recipe in part_names("llm_overview", options)
        },
        {} if steps is None else {key: steps},
    )
