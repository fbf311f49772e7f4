"""Whether two runs did the same amount of work: only then are sums over them comparable."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.intervals import IntArray
from nsys_llm.recipes.trace_diff.runs import Run

__all__ = [
    "ALIKE_PCT",
    "LEAST_CHANGE_PCT",
    "SAME_WORK_PCT",
    "apart_pct",
    "common_ratio",
    "other_window",
    "other_work",
    "work_ratio",
]

#: Windows, and numbers of launches, that differ by more are not those of the same work; ours.
SAME_WORK_PCT: Final = 5.0
#: Launch counts that change alike: their ratios differ by so little, for so much of the time; ours.
ALIKE_PCT: Final = 5.0
_ALIKE_SHARE_PCT: Final = 70.0
LEAST_CHANGE_PCT: Final = 2.0
_LEAST_LAUNCHES: Final = 8

FloatArray = npt.NDArray[np.float64]


def common_ratio(
    launches0: IntArray | FloatArray, launches1: IntArray | FloatArray, time_ns: FloatArray
) -> float | None:
    """Return the ratio of launch numbers that most kernels share.

    None where they share none, and where it is about 1.

    Args:
        launches0: Shape (kernels,), of those that both sides launch; all above 0.
        launches1: Likewise.
        time_ns: Shape (kernels,), what each weighs.
    """
    if launches0.size == 0 or launches0.sum() < _LEAST_LAUNCHES:
        return None
    ratio = float(launches1.sum() / launches0.sum())
    if ratio <= 0 or 100 * abs(ratio - 1) < LEAST_CHANGE_PCT:
        return None
    alike = 100 * np.abs(launches1 / launches0 / ratio - 1) <= ALIKE_PCT
    enough = time_ns[alike].sum() >= _ALIKE_SHARE_PCT / 100 * time_ns.sum()
    return ratio if enough else None


def work_ratio(before: Run, after: Run) -> float | None:
    """Return how much more of the same launches a run has; None where that is about as many."""
    names = sorted({key[0] for run in (before, after) for key in run.part.keys})
    first, second = before.kernels(names), after.kernels(names)
    both = (first.launches_n > 0) & (second.launches_n > 0)
    return common_ratio(
        first.launches_n[both],
        second.launches_n[both],
        first.total_ns[both].astype(np.float64),
    )


def other_work(before: Run, after: Run) -> bool:
    """Tell whether sums over two runs mean nothing against each other.

    They mean something where both did as many of the same steps; where none counts steps, where
    windows are about as long or launches about as many, and launches did not change all alike.
    """
    if len(before.ranks) != len(after.ranks):
        return True
    if before.steps_n is not None or after.steps_n is not None:
        return (before.step, before.steps_n) != (after.step, after.steps_n)
    return other_window(before, after) or work_ratio(before, after) is not None


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
