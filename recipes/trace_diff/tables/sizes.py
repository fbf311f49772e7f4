"""What of a kernel's change lies in other launch sizes: another grid or block is another problem.

The per-call effect of a kernel (see `nsys_llm.numeric.effects`) has two parts that add up to it
exactly:

    per-call effect = same-size effect + size effect
    same-size effect = sum over grids and blocks that both sides launch of their per-call effects
    size effect = the rest: grids and blocks of one side alone, and another mix of them

Only the first says that a kernel got slower or faster. Where an export has no grids, nothing is
known of sizes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.numeric.effects import split_change

from .verdicts import IMPROVE, REGRESS

#: Columns of the table configs that are a launch's size.
GEOMETRY: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_COUNTS: Final = ("baseline_launches_n", "input_launches_n")
_TIMES: Final = ("baseline_total_ns", "input_total_ns")


def sizes_of(configs: pd.DataFrame) -> pd.DataFrame:
    """Return what sizes tell of each kernel that both sides launch, by name.

    Args:
        configs: The table configs.

    Returns:
        By name: known (whether all sizes are recorded; if not, the others say nothing), same_ns
        (same-size effect on the sums, ns), same_ratio (of means at equal sizes; NaN without any),
        common (share of the launches whose size both sides have, of the side with less), sure_ns
        (the part of same_ns in configurations of which the test says that they changed),
        baseline_threads and input_threads (of all launches together), geometry (the most frequent
        size of each side, in words).
    """
    rows = (
        configs.groupby(["name", *GEOMETRY], dropna=False, sort=True)[[*_COUNTS, *_TIMES]]
        .sum()
        .reset_index()
    )
    n0, n1, t0, t1 = (rows[name].to_numpy(np.int64) for name in (*_COUNTS, *_TIMES))
    both = (n0 > 0) & (n1 > 0)
    effects = split_change(n0, t0, n1, t1)
    threads = rows[list(GEOMETRY)].astype("float64").prod(axis=1, skipna=False).to_numpy()
    rows = rows.assign(
        same_ns=np.where(both, effects.per_call, 0),
        same_t1=np.where(both, t1, 0),
        expected=np.where(both, t1 - effects.per_call, 0),
        common0=np.where(both, n0, 0),
        common1=np.where(both, n1, 0),
        baseline_threads=n0 * threads,
        input_threads=n1 * threads,
        unknown=np.isnan(threads),
    )
    sums = rows.groupby("name", sort=True)[
        [*_COUNTS, "same_ns", "same_t1", "expected", "common0", "common1", "unknown"]
    ].sum()
    for name in ("baseline_threads", "input_threads"):
        sums[name] = rows.groupby("name", sort=True)[name].sum(min_count=1)
        sums.loc[sums["unknown"] > 0, name] = np.nan
    on_both = sums[(sums[_COUNTS[0]] > 0) & (sums[_COUNTS[1]] > 0)]
    share0 = on_both["common0"] / on_both[_COUNTS[0]]
    share1 = on_both["common1"] / on_both[_COUNTS[1]]
    expected = on_both["expected"].astype("float64")
    return pd.DataFrame(
        {
            "same_ns": on_both["same_ns"],
            "known": on_both["unknown"] == 0,
            "same_ratio": on_both["same_t1"] / expected.where(expected > 0),
            "common": np.minimum(share0, share1).where(on_both["unknown"] == 0, 1.0),
            "baseline_threads": on_both["baseline_threads"],
            "input_threads": on_both["input_threads"],
            "sure_ns": _tested_ns(configs).reindex(on_both.index, fill_value=0),
            "geometry": _geometries(rows, on_both.index),
        }
    )


def _tested_ns(configs: pd.DataFrame) -> pd.Series:
    """Return, by name, the per-call effects of configurations that changed beyond chance."""
    tested = configs[configs["verdict"].isin([REGRESS, IMPROVE])]
    return tested.groupby("name")["per_call_effect_ns"].sum()


def _geometries(rows: pd.DataFrame, names: pd.Index) -> pd.Series:
    """Return the most frequent sizes of both sides as `grid 64x1x1 -> 128x1x1`."""
    first, second = (_most(rows, side) for side in _COUNTS)
    return pd.Series(
        [_words(first[name], second[name]) for name in names], index=names, dtype=object
    )


def _most(rows: pd.DataFrame, side: str) -> dict[str, tuple[Any, ...]]:
    ordered = rows.sort_values(["name", side], ascending=[True, False], kind="stable")
    largest = ordered.drop_duplicates("name")
    # None is equal to None, pandas' NA to nothing.
    columns = (largest[name].astype(object).where(largest[name].notna(), None) for name in GEOMETRY)
    return dict(zip(largest["name"], zip(*columns, strict=True), strict=True))


def _words(before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    parts = []
    for name, part in (("grid", slice(0, 3)), ("block", slice(3, 6))):
        if before[part] != after[part]:
            parts.append(f"{name} {_size(before[part])} -> {_size(after[part])}")
    return ", ".join(parts) or "another mix of the same grids"


def _size(sizes: tuple[Any, ...]) -> str:
    return "x".join("?" if pd.isna(size) else str(size) for size in sizes)
