"""Whether two runs did the same work, by their launches, tokens and windows as a whole."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..partials import by_name
from ..per_rank.operations import GEOMETRY_N, Key
from .runs import Runs, RunSums

#: Windows, and numbers of launches, that differ by more are not those of the same work; ours.
SAME_WORK_PCT: Final = 5.0
#: Share of each run's kernel time in kernels that both have, below which the runs are of different
#: programs; nsys-ai asks for a comparability of one half.
COMMON_PCT: Final = 50.0
#: Launch counts that change alike: their ratios differ by so little, for so much of the time; ours.
ALIKE_PCT: Final = 5.0
_ALIKE_SHARE_PCT: Final = 70.0
LEAST_CHANGE_PCT: Final = 2.0
_LEAST_LAUNCHES: Final = 8


def apart_pct(first: Any, second: Any) -> Any:
    """Return how far numbers lie apart, in percent of the larger; of arrays each pair."""
    return 100 * np.abs(second - first) / np.maximum(np.maximum(first, second), 1e-9)


def other_work(before: RunSums, after: RunSums) -> bool:
    """Tell whether sums over two runs mean nothing against each other.

    They mean something where both did as many of the same steps; where none counts steps, where
    windows are about as long or launches about as many, and launches did not change all alike.
    """
    if len(before.ranks) != len(after.ranks):
        return True
    if before.steps_n is not None or after.steps_n is not None:
        if before.tokens_n is not None and after.tokens_n is not None:
            return not same_tokens(before, after)
        return (before.step, before.steps_n) != (after.step, after.steps_n)
    return other_window(before, after) or work_ratio(before, after) is not None


def same_tokens(before: RunSums, after: RunSums) -> bool:
    """Tell whether the steps of two runs did as many tokens, however many steps these were."""
    if before.tokens_n is None or after.tokens_n is None or before.step != after.step:
        return False
    return bool(apart_pct(before.tokens_n, after.tokens_n) <= SAME_WORK_PCT)


def other_window(before: RunSums, after: RunSums) -> bool:
    """Tell whether windows of another length hold another number of launches."""
    windows = apart_pct(before.device_window_ns, after.device_window_ns)
    launches = apart_pct(before.launches_n, after.launches_n)
    return bool(min(windows, launches) > SAME_WORK_PCT)


def work_ratio(before: RunSums, after: RunSums) -> float | None:
    """Return how much more of the same launches a run has; None where that is about as many."""
    names = sorted({key[0] for run in (before, after) for key in run.part.keys})
    first, second = before.kernels(names), after.kernels(names)
    both = (first.launches_n > 0) & (second.launches_n > 0)
    n0, n1 = first.launches_n[both], second.launches_n[both]
    t0, t1 = (item.total_ns[both].astype(np.float64) for item in (first, second))
    few = 100 * t0.sum() < COMMON_PCT * before.kernel_ns
    if few or 100 * t1.sum() < COMMON_PCT * after.kernel_ns or n0.sum() < _LEAST_LAUNCHES:
        return None
    ratio = float(n1.sum() / n0.sum())
    if 100 * abs(ratio - 1) < LEAST_CHANGE_PCT:
        return None
    alike = 100 * np.abs(n1 / n0 / ratio - 1) <= ALIKE_PCT
    return ratio if t0[alike].sum() >= _ALIKE_SHARE_PCT / 100 * t0.sum() else None


def common_names_pct(runs: Runs) -> list[float]:
    """Return the share of each run's kernel time in kernels that both have."""
    common = sorted(set.intersection(*({key[0] for key in run.part.keys} for run in runs.compared)))
    return [
        100.0 * int(run.kernels(common).total_ns.sum()) / run.kernel_ns if run.kernel_ns else 0.0
        for run in runs.compared
    ]


def common_launches_pct(runs: Runs) -> float:
    """Return the share of kernel time in launches that both runs have, of the run with less.

    Compared are numbers of launches of each kernel, grid and block, over all ranks.
    """
    sides = [_by_geometry(run) for run in runs.compared]
    held = []
    for side, other in (sides, sides[::-1]):
        whole = sum(ns for _, ns in side.values())
        common = sum(
            ns * min(1.0, other.get(key, (0, 0))[0] / n) if n else 0.0
            for key, (n, ns) in side.items()
        )
        held.append(100 * common / whole if whole else 0.0)
    return min(held)


def _by_geometry(run: RunSums) -> dict[Key, tuple[int, ...]]:
    launches_n = run.part.counts.moments(len(run.part.keys)).n
    keys = [(key[0], *key[2 : 2 + GEOMETRY_N]) for key in run.part.keys]
    return by_name(keys, launches_n, run.part.total_ns)
