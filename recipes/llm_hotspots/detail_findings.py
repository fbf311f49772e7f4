"""Findings on what `details` tells: memory, GPU metrics, watched kernels; and on determinism."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nsys_llm.findings import Finding
from nsys_llm.recipes.llm_hotspots.determinism import determinism_findings
from nsys_llm.recipes.llm_hotspots.measured_findings import measured_findings
from nsys_llm.recipes.llm_hotspots.stakeout_findings import stakeout_findings

__all__ = ["detail_findings"]


def detail_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return the findings of this part of the recipe.

    Args:
        tables: The recipe's tables by name.
    """
    return [
        *measured_findings(tables),
        *stakeout_findings(tables),
        *determinism_findings(tables),
    ]
