"""Which launches of a kernel are of a size that the other run has, too: what else is other work."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

#: Columns of the table configs that are a launch's size.
GEOMETRY: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_COUNTS: Final = ["baseline_launches_n", "input_launches_n"]


def sizes_of(configs: pd.DataFrame) -> pd.DataFrame:
    """Return what sizes tell of each kernel that both sides launch, where all are recorded.

    Args:
        configs: The table configs.

    Returns:
        By name: common (share of the launches whose size both sides have, of the side with less),
        and geometry (the most frequent size of each side, in words).
    """
    rows = configs.groupby(["name", *GEOMETRY], dropna=False)[_COUNTS].sum().reset_index()
    rows["unknown"] = rows[list(GEOMETRY)].isna().any(axis=1)
    shared = rows[(rows[_COUNTS] > 0).all(axis=1)].groupby("name")[_COUNTS].sum()
    sums = rows.groupby("name")[[*_COUNTS, "unknown"]].sum()
    sums = sums[(sums[_COUNTS] > 0).all(axis=1) & (sums["unknown"] == 0)]
    common = shared.reindex(sums.index, fill_value=0)[_COUNTS] / sums[_COUNTS]
    first, second = (_most(rows, side) for side in _COUNTS)
    words = [_words(first[name], second[name]) for name in sums.index]
    return pd.DataFrame(
        {"common": common.min(axis=1), "geometry": np.array(words, dtype=object)}, sums.index
    )


def _most(rows: pd.DataFrame, side: str) -> dict[str, tuple[Any, ...]]:
    ordered = rows.sort_values(["name", side], ascending=[True, False], kind="stable")
    largest = ordered.drop_duplicates("name")
    # None is equal to None, pandas' NA to nothing.
    columns = (largest[name].astype(object).where(largest[name].notna(), None) for name in GEOMETRY)
    return dict(zip(largest["name"], zip(*columns, strict=True), strict=True))


def _words(before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    """Return the sizes as `grid 64x1x1 -> 128x1x1`."""
    parts = []
    for name, part in (("grid", slice(0, 3)), ("block", slice(3, 6))):
        if before[part] != after[part]:
            pair = ("x".join(map(str, sizes[part])) for sizes in (before, after))
            parts.append(f"{name} {' -> '.join(pair)}")
    return ", ".join(parts) or "another mix of the same grids"
