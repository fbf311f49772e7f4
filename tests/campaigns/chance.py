"""How often trace_diff calls equal runs different, and finds runs that are: step times at random.

python -m tests.campaigns.chance --pairs 1500

Half of the pairs of a cell are normal, half Student's t with 3 degrees of freedom, with a spread of
5 % and a correlation from one step to the next. Ends with 1 where a limit of `LIMITS` is passed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

from nsys_llm.numeric.two_samples import Difference, FloatArray, Order, Sample, winsorized
from nsys_llm.recipes.trace_diff.tables.step_verdict import Looks

STEPS = (5, 8, 10, 16, 24, 40)
ALIKE = (0.0, 0.3, 0.6)
NOISE = 0.05
CHANGE = 0.125
#: Percent of equal pairs that may differ by the location of their steps, and that may do probably.
LIMITS = {"differs": 10.5, "probably": 20.5}


def pairs(n: int, alike: float, pairs_n: int) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield the step times of both runs, of so many steps, mean 1."""
    dice = np.random.default_rng([n, round(10 * alike)])
    shape = pairs_n // 2, 2, n + 50
    shocks = np.concatenate((dice.normal(size=shape), dice.standard_t(3, shape) / 3**0.5))
    some = shocks.copy()
    for step in range(1, n + 50):
        some[..., step] = alike * some[..., step - 1] + math.sqrt(1 - alike**2) * shocks[..., step]
    yield from np.maximum(1 + NOISE * some[..., 50:], 0.1)


def looked(first: FloatArray, second: FloatArray) -> str:
    """Return what the steps say by themselves: differs, probably, or nothing."""
    weights, group = np.full(first.size, 1 / first.size), np.zeros(first.size, dtype=np.int64)
    samples = [Sample.of(winsorized(np.log(run), group), weights, group) for run in (first, second)]
    counts = first.size, second.size
    order = Order.of(first, second)
    looks = Looks((0, 0), counts, 1.0, first.size, Difference.of(*samples), order)
    if looks.moved:
        return "differs"
    return "probably" if looks.is_ordered(float(second.mean() / first.mean()) - 1) else ""


def said_pct(n: int, alike: float, pairs_n: int, factor: float = 1.0) -> dict[str, float]:
    """Return the percentage of pairs of which each is said."""
    said = Counter(looked(first, factor * second) for first, second in pairs(n, alike, pairs_n))
    return {word: 100 * said[word] / pairs_n for word in LIMITS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1500)
    pairs_n = parser.parse_args().pairs
    passed = []
    for title, factor in (("equal", 1.0), (f"{100 * CHANGE:g} % longer", 1 + CHANGE)):
        print(f"{title}: % that differ (probably), at a correlation of {ALIKE}", flush=True)
        for n in STEPS:
            cells = [said_pct(n, alike, pairs_n, factor) for alike in ALIKE]
            rates = " / ".join("{differs:.1f} ({probably:.1f})".format(**cell) for cell in cells)
            print(f"  {n} steps: {rates}", flush=True)
            if factor == 1:
                passed += [cell for cell in cells for word in cell if cell[word] > LIMITS[word]]
    return int(bool(passed))


if __name__ == "__main__":
    sys.exit(main())
