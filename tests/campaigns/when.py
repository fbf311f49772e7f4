"""How often the course of series over steps is told right, and how often something is made up.

python -m tests.campaigns.when --seed 1 --jobs 1000
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np

from nsys_llm.numeric.when import STEADY, Course, FloatArray, courses
from nsys_llm.numeric.when_shared import shared

Dice = np.random.Generator


def noise(dice: Dice, ranks_n: int, n: int, scale: float, alike: float, wide: bool) -> FloatArray:
    """Return noise with a standard deviation of `scale`, each step so much like the one before."""
    some = dice.standard_t(3, (ranks_n, n)) / 3**0.5 if wide else dice.normal(size=(ranks_n, n))
    for step in range(1, n):
        some[:, step] = alike * some[:, step - 1] + (1 - alike**2) ** 0.5 * some[:, step]
    return scale * some


def onset(dice: Dice, n: int, size: float) -> tuple[FloatArray, set[str]]:
    at = int(dice.integers(n // 5, n - n // 5))
    return np.where(np.arange(n) >= at, size, 0.0), {"from"}


def end(dice: Dice, n: int, size: float) -> tuple[FloatArray, set[str]]:
    at = int(dice.integers(n // 5, n - n // 5))
    return np.where(np.arange(n) < at, size, 0.0), {"until"}


def between(dice: Dice, n: int, size: float) -> tuple[FloatArray, set[str]]:
    length = n // 3
    at = int(dice.integers(5, n - length - 5))
    return np.where((np.arange(n) >= at) & (np.arange(n) < at + length), size, 0.0), {"between"}


def growth(dice: Dice, n: int, size: float) -> tuple[FloatArray, set[str]]:
    return np.linspace(0, 2 * size, n), {"grows"}


def once(dice: Dice, n: int, size: float) -> tuple[FloatArray, set[str]]:
    return _at(n, [int(dice.integers(1, n))], max(2 * size, 0.6)), {"once"}


def times(dice: Dice, n: int, size: float) -> tuple[FloatArray, set[str]]:
    steps = dice.choice(np.arange(1, n), int(dice.integers(3, max(n // 8, 4))), replace=False)
    # Steps in a row are one event, and chance spaces some evenly.
    return _at(n, steps.tolist(), max(2 * size, 0.6)), {"times", "every"}


def period(dice: Dice, n: int, size: float) -> tuple[FloatArray, set[str]]:
    every = int(dice.integers(4, n // 3))
    return _at(n, list(range(every - 1, n, every)), max(2 * size, 0.6)), {"every"}


def warm_up(dice: Dice, n: int, size: float) -> tuple[FloatArray, set[str]]:
    return 2 * size * np.exp(-np.arange(n) / dice.uniform(1, n / 12)), {STEADY}


def _at(n: int, steps: list[int], size: float) -> FloatArray:
    values = np.zeros(n)
    values[steps] = size
    return values


PLANTS: dict[str, Callable[[Dice, int, float], tuple[FloatArray, set[str]]]] = {
    some.__name__: some for some in (onset, end, between, growth, once, times, period, warm_up)
}


def right_pct(name: str, dice: Dice, n: int, jobs_n: int, scale: float) -> tuple[float, float]:
    """Return in how many jobs the planted rank's kind is right, and also its first step."""
    kind_n = step_n = 0
    for _ in range(jobs_n):
        ranks_n = int(dice.integers(2, 17))
        values = 1.0 + noise(dice, ranks_n, n, scale, dice.uniform(0, 0.4), False)
        added, kinds = PLANTS[name](dice, n, max(5 * scale, 0.1))
        values[0] += added
        found = courses(values, 1.0, 4 * ranks_n)
        others = {course.kind for course in found[1:]} - {STEADY}
        is_right = found[0].kind in kinds and not others
        kind_n += is_right
        first = int(np.flatnonzero(added)[0])
        step_n += is_right and (STEADY in kinds or abs(int(found[0].steps[0]) - first) <= 1)
    return 100.0 * kind_n / jobs_n, 100.0 * step_n / jobs_n


def made_up(dice: Dice, jobs_n: int, most_n: int) -> Counter[str]:
    """Return what steady jobs are said to have."""
    said = Counter[str]()
    for _ in range(jobs_n):
        ranks_n, n = int(dice.integers(1, most_n + 1)), int(dice.integers(12, 301))
        scale, alike = dice.uniform(0.01, 0.1), dice.uniform(0, 0.6)
        values = 1.0 + noise(dice, ranks_n, n, scale, alike, bool(dice.random() < 0.5))
        found: list[Course] = courses(values, 1.0, ranks_n)
        joint = shared(found)
        if joint is not None:
            said[joint.job.kind] += 1
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=200)
    options = parser.parse_args()
    dice = np.random.default_rng(options.seed)
    for most_n in (1, 16, 128):
        said = made_up(dice, options.jobs, most_n)
        print(
            f"steady, 1 to {most_n} series: {100 * said.total() / options.jobs:.2f} % {dict(said)}"
        )
    for name in PLANTS:
        for n in (30, 60, 200):
            rates = [right_pct(name, dice, n, options.jobs // 4, scale) for scale in (0.01, 0.03)]
            words = ", ".join(f"{kind:.0f} ({step:.0f})" for kind, step in rates)
            print(f"{name} {n}: noise 1 and 3 %: {words}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
