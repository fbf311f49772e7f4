"""How kernels are launched differently, which of them may be one under two names, and sizes.

Launches of a size that the other run does not have are other work, not slower or faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.trace.rank_sets import COMPARED

from ..per_rank.operations import CONFIG, GEOMETRY_N
from .runs import Runs, RunSums

#: Parts of a configuration as people speak of them: name, and positions in `CONFIG`.
_PARTS: Final = (
    ("grid", slice(0, 3)),
    ("block", slice(3, 6)),
    ("registers", slice(6, 7)),
    ("static shared memory", slice(7, 8)),
    ("dynamic shared memory", slice(8, 9)),
)
_GRID: Final = slice(0, 3)
#: Pairs of names of one category and grid, above which nothing tells which of them belong together.
_MOST_PAIRS: Final = 300_000

#: Columns of the table configs that are a launch's size.
GEOMETRY: Final = CONFIG[:GEOMETRY_N]
_COUNTS: Final = [f"{side}_launches_n" for side in COMPARED]

Config = tuple[int, ...]


def _configs(run: RunSums) -> dict[str, set[Config]]:
    configs_of: dict[str, set[Config]] = {}
    for key in run.part.keys:
        configs_of.setdefault(key[0], set()).add(tuple(key[2 : 2 + len(CONFIG)]))
    return configs_of


def config_changes(names: Sequence[str], status: Sequence[str], runs: Runs) -> list[str | None]:
    """Return what changed in the configurations of each kernel that both sides launch."""
    before, after = map(_configs, runs.compared)
    return [
        _change(before[name], after[name]) if here == "both" else None
        for name, here in zip(names, status, strict=True)
    ]


def _change(before: set[Config], after: set[Config]) -> str | None:
    gone, come = before - after, after - before
    if not gone and not come:
        return None
    if len(gone) != 1 or len(come) != 1:
        return f"{len(come)} new and {len(gone)} vanished, {len(before & after)} the same"
    return ", ".join(_parts_apart(*gone, *come))


def _parts_apart(old: Sequence[Any], new: Sequence[Any]) -> Iterator[str]:
    """Yield the parts of configurations, or of sizes, that differ: `grid 64x1x1 -> 128x1x1`."""
    for name, part in _PARTS:
        if old[part] != new[part]:
            sizes = (
                "x".join("?" if size == NULL_INT else str(size) for size in side[part])
                for side in (old, new)
            )
            yield f"{name} {' -> '.join(sizes)}"


def likely_renames(
    names: Sequence[str], status: Sequence[str], classes: Sequence[Classification], runs: Runs
) -> list[str | None]:
    """Pair new kernels with vanished ones of the same category and the same grids.

    Each is paired once: those launched equally often first, then those nearest in number.
    """
    configs = dict(zip(("vanished", "new"), map(_configs, runs.compared), strict=True))
    counts = [
        dict(zip(names, run.kernels(names).launches_n.tolist(), strict=True))
        for run in runs.compared
    ]
    alike: dict[tuple[str, frozenset[Config]], dict[str, list[str]]] = {}
    for name, here, kind in zip(names, status, classes, strict=True):
        if here in configs:
            grids = frozenset(config[_GRID] for config in configs[here][name])
            group = alike.setdefault((kind.category, grids), {"vanished": [], "new": []})
            group[here].append(name)
    partner: dict[str, str] = {}
    for group in alike.values():
        partner |= _paired(group["vanished"], group["new"], counts)
    return [partner.get(name) for name in names]


def _paired(
    olds: Sequence[str], news: Sequence[str], counts: Sequence[Mapping[str, int]]
) -> dict[str, str]:
    """Pair names that are alike, those of the nearest numbers of launches first."""
    if len(olds) * len(news) > _MOST_PAIRS:
        return {}
    partner: dict[str, str] = {}
    pairs = ((abs(counts[0][old] - counts[1][new]), old, new) for old in olds for new in news)
    for _, old, new in sorted(pairs):
        if old not in partner and new not in partner:
            partner[old], partner[new] = new, old
    return partner


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
    words = [
        ", ".join(_parts_apart(first[name], second[name])) or "another mix of the same grids"
        for name in sums.index
    ]
    return pd.DataFrame(
        {"common": common.min(axis=1), "geometry": np.array(words, dtype=object)}, sums.index
    )


def _most(rows: pd.DataFrame, side: str) -> dict[str, tuple[Any, ...]]:
    ordered = rows.sort_values(["name", side], ascending=[True, False], kind="stable")
    largest = ordered.drop_duplicates("name")
    # None is equal to None, pandas' NA to nothing.
    columns = (largest[name].astype(object).where(largest[name].notna(), None) for name in GEOMETRY)
    return dict(zip(largest["name"], zip(*columns, strict=True), strict=True))
