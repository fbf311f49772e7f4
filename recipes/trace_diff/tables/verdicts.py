"""Whether kernels got slower or faster, beyond chance: a test, and floors for what counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.rank_tests import RankTest, adjusted, compare_ranks

from .runs import KernelSide

REGRESS: Final = "regress"
IMPROVE: Final = "improve"
NONE: Final = "none"
INSUFFICIENT: Final = "insufficient"

#: Launches of a side below which the normal approximation says little; scipy's limit for it, too.
LEAST_LAUNCHES: Final = 8
#: Durations are mostly multiples of it (see docs on exact counts): a median that moves by one tick
#: has not moved.
_TICK_NS: Final = 32

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tests:
    """Kernels, or configurations of them, on two sides; all of shape (rows,).

    Attributes:
        p50_change_pct: Change of the median; NaN where there is none, or it is 0.
        p_value: See `nsys_llm.numeric.rank_tests`; NaN with too few launches.
        q_value: Adjusted.
        shift: Cliff's delta.
        verdict: One of the constants here.
    """

    p50_change_pct: FloatArray
    p_value: FloatArray
    q_value: FloatArray
    shift: FloatArray
    verdict: npt.NDArray[np.object_]


def compared(
    before: KernelSide,
    after: KernelSide,
    noise: FloatArray | None,
    options: Mapping[str, Any],
    tick_ns: int = _TICK_NS,
) -> Tests:
    """Compare the durations of each row: of each kernel, configuration, call or range.

    Args:
        before: The baseline.
        after: The input.
        noise: How far medians of equal runs differ, percent of the baseline's; None: not known.
        options: alpha and min_effect.
        tick_ns: A median that moves by no more has not moved.
    """
    rows_n = before.launches_n.size
    enough = (before.launches_n >= LEAST_LAUNCHES) & (after.launches_n >= LEAST_LAUNCHES)
    ranks = compare_ranks(before.counts, after.counts, rows_n)
    test = RankTest(np.where(enough, ranks.p_value, np.nan), ranks.shift)
    q_value = adjusted(test.p_value)
    change_pct = median_changes(before, after)
    floor_pct = np.full(rows_n, options["min_effect"])
    if noise is not None:
        floor_pct = np.fmax(floor_pct, noise)
    moved = np.abs(after.twice_p50 - before.twice_p50) > 2 * tick_ns
    with np.errstate(invalid="ignore"):
        real = (q_value < options["alpha"]) & moved & (np.abs(change_pct) >= floor_pct)
    verdict = np.full(rows_n, NONE, dtype=object)
    verdict[real & (change_pct > 0)] = REGRESS
    verdict[real & (change_pct < 0)] = IMPROVE
    verdict[~enough] = INSUFFICIENT
    return Tests(change_pct, test.p_value, q_value, test.shift, verdict)


def median_changes(before: KernelSide, after: KernelSide) -> FloatArray:
    """Return the change of medians in percent; NaN where one is missing or the first is 0."""
    known = (before.launches_n > 0) & (after.launches_n > 0) & (before.twice_p50 > 0)
    change = 100.0 * (after.twice_p50 - before.twice_p50)
    return np.where(known, change / np.where(known, before.twice_p50, 1), np.nan)


def noise_pct(before: KernelSide, repeats: Sequence[KernelSide]) -> FloatArray | None:
    """Return how far the medians of equal runs lie apart, in percent of the baseline's.

    None without repeats; NaN for what none of them launches.
    """
    if not repeats:
        return None
    sides = [before, *repeats]
    medians = np.array(
        [np.where(side.launches_n > 0, side.twice_p50 / 2.0, np.nan) for side in sides]
    )
    seen = (~np.isnan(medians)).sum(axis=0) >= 2
    known = seen & (before.launches_n > 0) & (before.twice_p50 > 0)
    spread = np.full(before.launches_n.shape, np.nan)
    apart = np.nanmax(medians[:, known], axis=0) - np.nanmin(medians[:, known], axis=0)
    spread[known] = 100.0 * apart / (before.twice_p50[known] / 2.0)
    return spread
