"""Stub."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nsys_llm.findings import Finding

__all__ = ["findings"]


def findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return."""
    return []
