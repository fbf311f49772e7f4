"""How kernels are launched differently, and which of them may be one under two names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.taxonomy.categories import Classification

from ..per_rank.launches import CONFIG
from .runs import Run, Runs

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

Config = tuple[int, ...]


def config_changes(names: Sequence[str], status: Sequence[str], runs: Runs) -> list[str | None]:
    """Return what changed in the configurations of each kernel that both sides launch."""
    before, after = _configs(runs.baseline), _configs(runs.input)
    return [
        _change(before[name], after[name]) if here == "both" else None
        for name, here in zip(names, status, strict=True)
    ]


def likely_renames(
    names: Sequence[str],
    status: Sequence[str],
    classes: Sequence[Classification],
    runs: Runs,
) -> list[str | None]:
    """Pair new kernels with vanished ones of the same category and the same grids.

    Each is paired once: those launched equally often first, then those nearest in number.
    """
    before, after = _configs(runs.baseline), _configs(runs.input)
    counts = [
        dict(zip(names, run.kernels(names).launches_n.tolist(), strict=True))
        for run in runs.compared
    ]
    kind = {
        name: classification.category for name, classification in zip(names, classes, strict=True)
    }
    gone = [name for name, here in zip(names, status, strict=True) if here == "vanished"]
    come = [name for name, here in zip(names, status, strict=True) if here == "new"]
    alike: dict[tuple[str, frozenset[Config]], tuple[list[str], list[str]]] = {}
    for side, unpaired, configs in ((0, gone, before), (1, come, after)):
        for name in unpaired:
            key = kind[name], _grids(configs[name])
            alike.setdefault(key, ([], []))[side].append(name)
    partner: dict[str, str] = {}
    for olds, news in alike.values():
        partner |= _paired(olds, news, counts)
    return [partner.get(name) for name in names]


def _paired(
    olds: Sequence[str], news: Sequence[str], counts: Sequence[Mapping[str, int]]
) -> dict[str, str]:
    """Pair names that are alike, those of the nearest numbers of launches first."""
    if len(olds) * len(news) > _MOST_PAIRS:
        return {}
    partner: dict[str, str] = {}
    for _, old, new in sorted(
        (abs(counts[0][old] - counts[1][new]), old, new) for old in olds for new in news
    ):
        if old not in partner and new not in partner:
            partner[old], partner[new] = new, old
    return partner


def _configs(run: Run) -> dict[str, set[Config]]:
    configs_of: dict[str, set[Config]] = {}
    for key in run.part.keys:
        configs_of.setdefault(key[0], set()).add(tuple(key[2 : 2 + len(CONFIG)]))
    return configs_of


def _grids(configs: set[Config]) -> frozenset[Config]:
    return frozenset(config[_GRID] for config in configs)


def _change(before: set[Config], after: set[Config]) -> str | None:
    gone, come = before - after, after - before
    if not gone and not come:
        return None
    if len(gone) == len(come) == 1:
        (old,), (new,) = gone, come
        parts = [
            f"{name} {_sizes(old[part])} -> {_sizes(new[part])}"
            for name, part in _PARTS
            if old[part] != new[part]
        ]
        return ", ".join(parts)
    return f"{len(come)} new and {len(gone)} vanished, {len(before & after)} the same"


def _sizes(sizes: Sequence[Any]) -> str:
    return "x".join("?" if size == NULL_INT else str(size) for size in sizes)
