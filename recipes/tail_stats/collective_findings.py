"""What the collectives tell: who makes whom wait, and what cannot be told. From tables alone."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nsys_llm.findings import Finding

__all__ = ["collective_answer", "collective_findings"]


def collective_answer(tables: Mapping[str, pd.DataFrame]) -> str:
    """Placeholder."""
    return "One. Two."


def collective_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Placeholder."""
    return []
