"""Whether two runs did the same amount of work: only then are sums over them comparable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray

from .runs import Run

#: Windows, and numbers of launches, that differ by more are not those of the same work; ours.
SAME_WORK_PCT: Final = 5.0
#: Launch counts that change alike: their ratios differ by so little, for so much of the time; ours.
ALIKE_PCT: Final = 5.0
_ALIKE_SHARE_PCT: Final = 70.0
LEAST_CHANGE_PCT: Final = 2.0
_LEAST_LAUNCHES: Final = 8
#: Share of each side's kernel time in kernels that both have, below which the runs are of different
#: programs; nsys-ai asks for a comparability of one half.
COMMON_PCT: Final = 50.0
#: Grid and block are the first values of a launch configuration.
_GEOMETRY_N: Final = 6

FloatArray = npt.NDArray[np.float64]


def common_ratio(
    launches0: IntArray | FloatArray,
    launches1: IntArray | FloatArray,
    time_ns: FloatArray,
    same_size: npt.NDArray[np.bool_],
) -> float | None:
    """Return the ratio of launch numbers that most kernels share.

    None where they share none, and where it is about 1.

    Args:
        launches0: Shape (kernels,), of those that both sides launch; all above 0.
        launches1: Likewise.
        time_ns: Shape (kernels,), what each weighs.
        same_size: Shape (kernels,), whether their launches are about as large on both sides: one
            large launch split into sixteen is not sixteen times the work.
    """
    before_n, after_n = launches0[same_size].sum(), launches1[same_size].sum()
    if before_n < _LEAST_LAUNCHES:
        return None
    ratio = float(after_n / before_n)
    if ratio <= 0 or 100 * abs(ratio - 1) < LEAST_CHANGE_PCT:
        return None
    alike = same_size & (100 * np.abs(launches1 / launches0 / ratio - 1) <= ALIKE_PCT)
    enough = time_ns[alike].sum() >= _ALIKE_SHARE_PCT / 100 * time_ns.sum()
    return ratio if enough else None


def alike_sizes(
    threads0: FloatArray,
    launches0: IntArray | FloatArray,
    threads1: FloatArray,
    launches1: IntArray | FloatArray,
) -> npt.NDArray[np.bool_]:
    """Tell which kernels launch about as many threads a call on both sides; all of one shape.

    Unknown sizes, NaN, count as alike.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (threads1 / launches1) / (threads0 / launches0)
    return np.isnan(ratio) | (100 * np.abs(ratio - 1) <= ALIKE_PCT)


def work_ratio(before: Run, after: Run) -> float | None:
    """Return how much more of the same launches a run has; None where that is about as many."""
    names = sorted({key[0] for run in (before, after) for key in run.part.keys})
    first, second = before.kernels(names), after.kernels(names)
    both = (first.launches_n > 0) & (second.launches_n > 0)
    n0, n1 = first.launches_n[both], second.launches_n[both]
    t0, t1 = (item.total_ns[both].astype(np.float64) for item in (first, second))
    if 100 * t0.sum() < COMMON_PCT * before.kernel_ns or (
        100 * t1.sum() < COMMON_PCT * after.kernel_ns
    ):
        return None
    threads = (_threads(run, names)[both] for run in (before, after))
    return common_ratio(n0, n1, t0, alike_sizes(next(threads), n0, next(threads), n1))


def _threads(run: Run, names: Sequence[str]) -> FloatArray:
    """Return the threads of all launches of each kernel; NaN where grids are not recorded."""
    place = {name: index for index, name in enumerate(names)}
    code = np.array([place[key[0]] for key in run.part.keys], dtype=np.int64)
    launches_n = run.part.counts.moments(len(run.part.keys)).n
    sizes = np.array([key[2 : 2 + _GEOMETRY_N] for key in run.part.keys], dtype=np.int64)
    sizes = sizes.reshape(-1, _GEOMETRY_N)
    threads = np.where((sizes == NULL_INT).any(axis=1), np.nan, sizes.prod(axis=1, dtype=float))
    sums = np.bincount(code, launches_n * threads, minlength=len(names))
    return sums.astype(np.float64)


def other_work(before: Run, after: Run) -> bool:
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


def same_tokens(before: Run, after: Run) -> bool:
    """Tell whether the steps of two runs did as many tokens, however many steps these were."""
    if before.tokens_n is None or after.tokens_n is None or before.step != after.step:
        return False
    return apart_pct(before.tokens_n, after.tokens_n) <= SAME_WORK_PCT


def other_window(before: Run, after: Run) -> bool:
    """Tell whether windows of another length hold another number of launches."""
    windows = [run.window_ns // max(len(run.devices), 1) for run in (before, after)]
    return (
        apart_pct(*windows) > SAME_WORK_PCT
        and apart_pct(before.launches_n, after.launches_n) > SAME_WORK_PCT
    )


def apart_pct(before: int, after: int) -> float:
    """Return how far two numbers lie apart, in percent of the larger."""
    return 100.0 * abs(after - before) / max(before, after, 1)
