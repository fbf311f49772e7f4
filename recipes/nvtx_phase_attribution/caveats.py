"""What to know before reading the numbers of phases."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

__all__ = ["caveats"]


def caveats(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    return []
