"""What travels from workers: the partial of each recipe, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsys_llm.report.analysis import load_analysis


@dataclass(frozen=True)
class OverviewPartial:
    """Many ranks.

    Attributes:
        parts: The merged partial of each recipe, by its name; a recipe without a rank is not there.
    """

    parts: Mapping[str, Any] = field(default_factory=dict)


def merged(parts: Sequence[OverviewPartial]) -> OverviewPartial:
    """Join partials of distinct ranks; associative and commutative, as the recipes' own are."""
    recipes = sorted({recipe for part in parts for recipe in part.parts})
    return OverviewPartial(
        {
            recipe: load_analysis(recipe).merge(
                [part.parts[recipe] for part in parts if recipe in part.parts]
            )
            for recipe in recipes
        }
    )
