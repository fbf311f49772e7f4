"""Which of several equals stand out by more than chance gives. Pure numpy.

Values of ranks in steps are compared within each step, so what varies alike on all ranks is no
scatter. Steps in a row may be alike, so means of blocks of steps are compared; how long blocks must
be is told by the ranks other than the one that is tested: its own bursts do not hide it. With many
blocks the chance is Chernoff's bound over all orders that the values of a block could have had;
with few it is Student's, which supposes normal noise.

A long step now and then would be the scale of all others: what is beyond ten times the usual is cut
off there, alike for all ranks, so equals stay exchangeable. Of 100 jobs in which 3 % of all steps
are 2.7 times as long and one of 4 ranks is 5 % slower for 30 steps, that one is named in 96 (9 as
it was, another rank in 12). The price is a rare burst: 10 % in 8 of 24 steps, at 1 % noise, is
named in 60 % of jobs of 4 ranks (82), of 8 in 82 (85).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.two_samples import student_tail

FloatArray = npt.NDArray[np.float64]

#: Chance of a name among equals, for one kind of evidence and one group of peers.
ALPHA: Final = 0.004
#: Why a rank has no verdict.
FEW_STEPS: Final = "few_steps"
DRIFT: Final = "drift"
CHANCE: Final = "chance"
SMALL: Final = "small"
#: Slow or fast by more than chance.
_OUT: Final = ("", SMALL)

#: Fewer steps show no drift; a rank that is named by them is far beyond the others.
_DRIFT_STEPS: Final = 10
_LEAST_BLOCKS: Final = 3
_MOST_RHO: Final = 0.97
#: Values beyond so many times the usual are cut off; at 6 bursts of three ranks are lost more often
#: (35 % instead of 43).
_MOST_TIMES: Final = 10
#: Student's chances below are not told apart.
_LEAST: Final = 1e-260
#: Tilts of Chernoff's bound that are tried, in units of one over the largest value.
_TILTS: Final = np.logspace(-2, 3, 61)


@dataclass(frozen=True)
class Standing:
    """What the test says of one rank.

    Attributes:
        log_chance: Logarithm of the probability that any of equals stands out as much; 0 without a
            test (no blocks).
        reason: Why it is not named as slow; "" where it is, SMALL where it stands out as fast.
        size: How far it lies beyond the median of the others, in the mean of steps; 0 where that
            is not asked for.
    """

    log_chance: float
    blocks_n: int
    reason: str
    size: float = 0.0

    @property
    def named(self) -> bool:
        """Whether it is slow by more than chance."""
        return not self.reason


def standings(values: FloatArray, alpha: float = ALPHA) -> list[Standing]:
    """Test ranks that should be alike.

    The one that stands out most is left out and the others are tested again, until none does.

    Args:
        values: Shape (ranks, steps); larger is slower. At least two ranks.
        alpha: Chance that any of equals is named.
    """
    tests, left = _tests(values, alpha), list(range(len(values)))
    result = [replace(item, reason=CHANCE) if item.reason in _OUT else item for item in tests]
    while named := [place for place, item in enumerate(tests) if item.reason in _OUT]:
        best = min(named, key=lambda place: tests[place].log_chance)
        result[left.pop(best)] = tests[best]
        tests = _tests(values[left], alpha)
    fast = [item for item in result if item.reason == SMALL]
    if fast and 2 * len(fast) >= len(values):
        worst = max(fast, key=lambda item: item.log_chance)
        result = [item if item.reason == SMALL else replace(worst, reason="") for item in result]
    return result


def _tests(values: FloatArray, alpha: float) -> list[Standing]:
    """Return the test of each rank, shape (ranks, steps); one alone is not named."""
    ranks_n, steps_n = values.shape
    if ranks_n < 2 or steps_n < _LEAST_BLOCKS:
        return [Standing(0.0, 0, CHANCE if ranks_n < 2 else FEW_STEPS)] * ranks_n
    beyond = values - np.median(values, axis=0)
    # Where most values are equal, any other is beyond the usual.
    most = _MOST_TIMES * float(np.median(np.abs(beyond)))
    beyond = np.clip(beyond, -most, most) if most else beyond
    lengths = block_lengths(beyond).tolist()
    tests = {length: _tests_of_blocks(beyond, length, alpha) for length in set(lengths)}
    return [tests[length][row] for row, length in enumerate(lengths)]


def _tests_of_blocks(beyond: FloatArray, length: int, alpha: float) -> list[Standing]:
    ranks_n, steps_n = beyond.shape
    # Blocks that are too short are like the one before: as many fewer say something new.
    used = min(length, steps_n // _LEAST_BLOCKS)
    blocks_n = steps_n // used
    last = beyond[:, steps_n - blocks_n * used :]
    means = last.reshape(ranks_n, blocks_n, used).mean(axis=2)
    enough = math.log(4) + (1 - blocks_n) * math.log(ranks_n) <= math.log(alpha / 2)
    if enough and used == length:
        return _chernoff_tests(means, alpha)
    return [_student_test(means, row, alpha, length / used) for row in range(ranks_n)]


def others_beyond(values: npt.NDArray[Any]) -> FloatArray:
    """Return what each peer has beyond the median of the others, in each step; exact to 2**53."""
    return np.asarray(values - of_others(values))


def of_others(values: npt.NDArray[Any]) -> FloatArray:
    """Return the median of the others, for each of at least two peers in each step."""
    ranked, peers_n = np.sort(values, axis=0), len(values)
    # Without a value itself, those above it move down by one.
    low, high = (
        np.where(values <= ranked[at], ranked[at + 1], ranked[at])
        for at in ((peers_n - 2) // 2, (peers_n - 1) // 2)
    )
    return np.asarray((low + high) / 2)


def block_lengths(beyond: FloatArray) -> IntArray:
    """Return how many steps make a block that is not like the one before, by the other ranks.

    Args:
        beyond: Shape (ranks, steps), values beyond the ranks' median in each step.

    Returns:
        Shape (ranks,); 1 where there are too few steps to tell.
    """
    ranks_n, steps_n = beyond.shape
    if steps_n < _DRIFT_STEPS:
        return np.ones(ranks_n, dtype=np.int64)
    around = beyond - beyond.mean(axis=1, keepdims=True)
    sums = (around[:, :-1] * around[:, 1:]).sum(axis=1), (around**2).sum(axis=1)
    left_out = 1 if ranks_n > 2 else 0  # of two ranks one is as late as the other is early
    next_sum, square_sum = (some.sum() - left_out * some for some in sums)
    alike = next_sum / np.where(square_sum > 0, square_sum, 1.0)
    values_n = max(ranks_n - 2, 1) * steps_n
    error = 1 / math.sqrt(values_n)
    rho = np.clip(alike + (1 + 3 * alike) / steps_n + error, 0.0, _MOST_RHO)
    length = np.ceil((1 + rho) / (1 - rho)).astype(np.int64)
    return np.where(rho <= 2 * error, 1, length)


def _chernoff_tests(means: FloatArray, alpha: float) -> list[Standing]:
    """Return the tests by means of blocks, shape (ranks, blocks)."""
    ranks_n, blocks_n = means.shape
    scaled = means / (float(np.abs(means).max()) or 1.0)
    sums = scaled.sum(axis=1)
    slow, fast = (
        np.min([_log_mean(sign * tilt * scaled) - sign * tilt * sums for tilt in _TILTS], axis=0)
        for sign in (1.0, -1.0)
    )
    if ranks_n == 2:  # one is as late as the other is early: the later one is named
        fast = np.zeros_like(fast)
    logs = np.minimum(np.minimum(slow, fast) + math.log(ranks_n), 0.0)
    reasons = np.where(logs >= math.log(alpha / 2), CHANCE, np.where(slow <= fast, "", SMALL))
    pairs = zip(logs.tolist(), reasons.tolist(), strict=True)
    return [Standing(log, blocks_n, reason) for log, reason in pairs]


def _log_mean(exponents: FloatArray) -> float:
    """Return the logarithm of the product over blocks of the mean over ranks of exp."""
    top = exponents.max(axis=0)
    means = np.exp(exponents - top).mean(axis=0)
    return float((np.log(means) + top).sum())


def _student_test(means: FloatArray, row: int, alpha: float, stretched: float) -> Standing:
    """Test one rank by blocks that would have to be `stretched` times as long to differ."""
    ranks_n, blocks_n = means.shape
    rank, others = means[row], np.delete(means, row, axis=0)
    apart = float(rank.mean() - others.mean())
    rest = means - means.mean(axis=1, keepdims=True) - means.mean(axis=0) + means.mean()
    degrees = (ranks_n - 1) * (blocks_n - 1)
    variance = float((rest**2).sum()) / degrees
    error = math.sqrt(variance * (1 / blocks_n + 1 / (blocks_n * (ranks_n - 1))))
    # Sums of floats that are equal in exact numbers differ by their last bits.
    least = 1e-12 * float(np.abs(means).max())
    otherwise = DRIFT if stretched > 1 else CHANCE
    if abs(apart) <= least:
        return Standing(0.0, blocks_n, otherwise)
    ratio = abs(apart) / (stretched * error) if error > least else math.inf
    tails_n = 2 * ranks_n if ranks_n > 2 else 2
    log_chance = math.log(min(max(tails_n * student_tail(ratio, degrees), _LEAST), 1.0))
    sign = math.copysign(1.0, apart)
    throughout = bool((sign * rank > (sign * others).max(axis=0)).all())
    named = throughout and (apart > 0 or ranks_n > 2) and log_chance <= math.log(alpha)
    reason = otherwise if not named else "" if apart > 0 else SMALL
    return Standing(log_chance, blocks_n, reason)
