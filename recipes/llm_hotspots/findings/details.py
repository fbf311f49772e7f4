"""Findings on what `details` tells: memory, GPU metrics, watched kernels; and on determinism."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nsys_llm.report.findings import Finding

from .determinism import determinism_findings
from .measured import measured_findings
from .watched_kernels import watched_kernel_findings


def detail_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return the findings of this part of the recipe.

    Args:
        tables: The recipe's tables by name.
    """
    return [
        *measured_findings(tables),
        *watched_kernel_findings(tables),
        *determinism_findings(tables),
    ]
