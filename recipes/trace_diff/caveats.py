"""Stub."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

__all__ = ["caveats"]


def caveats(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return."""
    return []
