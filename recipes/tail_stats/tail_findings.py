"""Findings."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nsys_llm.findings import Finding

__all__ = ["tail_findings"]


def tail_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return findings."""
    return []
