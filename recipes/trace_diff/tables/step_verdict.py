"""Whether the input is faster or slower in wall-clock time, and whether that is more than chance.

Two looks. Bursts: a step is slow above twice the median of its own run, and Fisher's exact test
tells whether one run has more of them. Location: Welch's t on the logarithms of the other steps,
far ones moved in, which count as fewer where neighbors are alike. Where neither decides, runs of
which nearly every step is longer than nearly every one of the other probably differ. Further runs
of the baseline decide by themselves. Time that the profiler took is no change of the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

import numpy as np

from nsys_llm.numeric.two_samples import (
    Difference,
    FloatArray,
    Order,
    fisher_p,
    prediction_half,
    winsorized,
)

from .chosen_steps import Chosen, choices
from .comparability import NOT_COMPARABLE, OTHER_WORK, Comparison
from .equal_work import LEAST_STEPS, tokens_of
from .step_splits import SPAN, Gpu, Split, mean_split, program_ns, total

FASTER: Final = "FASTER"
SLOWER: Final = "SLOWER"
PROBABLY: Final = "PROBABLY "
#: Words of a change.
CHANGED: Final = frozenset({FASTER, SLOWER, PROBABLY + FASTER, PROBABLY + SLOWER})
SAME: Final = "SAME"
UNCERTAIN: Final = "UNCERTAIN"

#: Why the word is what it is.
LOCATION: Final = "location"
BURSTS: Final = "bursts"
BOTH: Final = "location and bursts"
RUNS: Final = "baselines"
ORDER: Final = "order"
TOLERANCE: Final = "tolerance"
NOISE: Final = "noise"
FEW_STEPS: Final = "few_steps"
CHANCE: Final = "chance"
MIXED: Final = "mixed"
ONE_SPAN: Final = "one_span"
WORK: Final = "work"
COMPARABILITY: Final = "comparability"

#: A change below this is none, in percent; ours.
LEAST_PCT: Final = 1.0
#: So likely by chance, it is none: of bursts, and of the location of steps, by the steps that both
#: runs have. Simulated: at most 10.5 % of equal runs with a correlation up to 0.6 are called moved.
BURSTS_ALPHA: Final = 0.05
_LOCATION_ALPHAS: Final = ((10, 0.05), (8, 0.025), (LEAST_STEPS, 0.01))
#: Steps of both runs, probability that one is longer, and change in percent that is probably one.
_ORDER_STEPS: Final = 8
_ORDER_SHARE: Final = 0.8
_ORDER_PCT: Final = 3.0
#: Standard errors of a change that the test finds in 80 % of captures: normal quantiles of 0.975
#: and 0.8; and steps from which on it is so strict.
_FOUND: Final = 1.96 + 0.84
_FOUND_STEPS: Final = _LOCATION_ALPHAS[0][0]


@dataclass(frozen=True)
class Figure:
    """How long a step of both runs is.

    Attributes:
        chosen: Steps of baseline and input that make it.
        step_ns: Mean wall-clock time of a step of both.
        program_ns: Without the profiler's own work.
        interval: 95 % interval of the change relative to the baseline; None with fewer than 5
            steps of a run, where steps reach less far, and where a few move the mean beyond it.
        difference: Of the logarithms of these steps; None with fewer than 5 steps.
    """

    chosen: tuple[Chosen, Chosen]
    splits: tuple[Mapping[Gpu, Split], Mapping[Gpu, Split]]
    step_ns: tuple[float, float]
    program_ns: tuple[float, float]
    interval: tuple[float, float] | None
    difference: Difference | None

    @classmethod
    def of(cls, chosen: tuple[Chosen, Chosen], known: Difference | None = None) -> Figure | None:
        """Return the figure of some steps, whose difference may be known; None without any."""
        splits0, splits1 = (side.splits() for side in chosen)
        if not splits0 or not splits1:
            return None
        means = mean_split(splits0), mean_split(splits1)
        before, after = map(total, means)
        program0, program1 = map(program_ns, means)
        interval, difference = None, None
        if min(int(side.kept.sum()) for side in chosen) >= LEAST_STEPS and program0 > 0 < program1:
            own = (side.sample(side.relative(side.cell_means_ns())) for side in chosen)
            difference = known or Difference.of(*own)
            means_ns = chosen[0].cell_means_ns()
            first, second = (side.relative(means_ns) for side in chosen)
            width, log = difference.half_width(), math.log(after / before)
            low, high = math.expm1(log - width), math.expm1(log + width)
            is_free = known is None or chosen[0].cells.shares is not None
            is_one = is_free or abs(math.log(program1 / program0) - difference.change) <= width
            if is_one and high - low <= second.max() / first.min() - second.min() / first.max():
                interval = low, high
        step_ns, program = (before, after), (program0, program1)
        return cls(chosen, (splits0, splits1), step_ns, program, interval, difference)

    @property
    def change(self) -> float:
        """Of the program, relative to the baseline."""
        before, after = self.program_ns
        return (after - before) / before if before else 0.0

    @property
    def steps_n(self) -> tuple[int, int]:
        """Full steps of a GPU that are compared, of both runs."""
        first, second = self.chosen
        return first.steps_n, second.steps_n


@dataclass(frozen=True)
class Looks:
    """What both looks tell: of bursts, and of the location of the other steps.

    Attributes:
        slow_n: Steps above twice the median, of baseline and input; adjacent ones of one pause
            count once.
        steps_n: All that are compared, likewise.
        slow_p: Fisher's p, one-sided in the direction seen; None with too few steps.
        typical_n: Steps that are not slow, of the run with fewer.
        difference: Of the logarithms of typical steps; None with too few.
    """

    slow_n: tuple[int, int]
    steps_n: tuple[int, int]
    slow_p: float | None
    typical_n: int
    difference: Difference | None
    order: Order | None

    @classmethod
    def of(cls, typical: tuple[Chosen, Chosen], whole: tuple[Chosen, Chosen]) -> Looks:
        """Look at the typical steps of both runs, and at all."""
        counts = [side.slow_count() for side in whole]
        (k0, n0), (k1, n1) = counts
        slow_p = None
        if min(n0, n1) >= LEAST_STEPS:
            slow_p = fisher_p(*(counts if k1 * n0 > k0 * n1 else counts[::-1]))
        typical_n = min(int(side.kept.sum()) for side in typical)
        if typical_n < LEAST_STEPS:
            return cls((k0, k1), (n0, n1), slow_p, typical_n, None, None)
        means_ns = typical[0].cell_means_ns()
        values = [side.relative(means_ns) for side in typical]
        first, second = (
            side.sample(winsorized(np.log(some), side.cell[side.kept]))
            for side, some in zip(typical, values, strict=True)
        )
        difference, order = Difference.of(first, second), Order.of(*values)
        return cls((k0, k1), (n0, n1), slow_p, typical_n, difference, order)

    @property
    def more_slow(self) -> int:
        """Above 0 where more of the input's steps are slow, below 0 where more were before."""
        (k0, k1), (n0, n1) = self.slow_n, self.steps_n
        return k1 * n0 - k0 * n1

    @property
    def is_burst(self) -> bool:
        """Whether one of the runs has more slow steps than chance gives."""
        return self.slow_p is not None and self.slow_p < BURSTS_ALPHA

    @property
    def moved(self) -> float:
        """Change of the logarithm of typical steps; 0 where it may be chance."""
        if self.difference is None:
            return 0.0
        alpha = next(alpha for least, alpha in _LOCATION_ALPHAS if self.typical_n >= least)
        return self.difference.change if self.difference.p_value < alpha else 0.0

    @property
    def is_moved(self) -> bool:
        """Whether typical steps differ by more than chance gives, and by enough to be a change."""
        return abs(self.moved) >= math.log1p(LEAST_PCT / 100)

    def is_ordered(self, change: float) -> bool:
        """Tell whether steps of one run are mostly longer, and by enough; a run and back alike."""
        if self.order is None or self.typical_n < _ORDER_STEPS:
            return False
        longer = self.order.longer if change > 0 else 1 - self.order.longer
        return longer >= _ORDER_SHARE and abs(math.log1p(change)) >= math.log1p(_ORDER_PCT / 100)

    def wants_typical(self, change: float, *, is_by_cell: bool) -> bool:
        """Tell whether the figure is that of typical steps, of which the change is given."""
        is_told = self.is_moved or self.is_ordered(change)
        return not self.is_burst and (is_told or is_by_cell or not self.more_slow)

    def reason(self, change: float) -> str | None:
        """What tells the runs apart, the same way as the figure; None where nothing does."""
        is_burst = self.is_burst and self.more_slow * change > 0
        if self.is_moved and self.moved * change > 0:
            return BOTH if is_burst else LOCATION
        return BURSTS if is_burst else None


@dataclass(frozen=True)
class StepVerdict:
    """The verdict.

    Attributes:
        figure: None where nothing is compared; `looks` is None without steps, too.
        runs_ns: Time of a step of the baseline, and of further runs of it.
        enough_n: Steps of each run that would decide; None where it is decided or not known.
        token_ns: Time a token of both runs, where work differs; None: not known.
        all_pct: Change of the mean of all steps, slow ones and ends of cells included.
    """

    word: str
    word_reason: str
    comparison: Comparison
    figure: Figure | None = None
    looks: Looks | None = None
    runs_ns: tuple[float, ...] = ()
    enough_n: int | None = None
    token_ns: tuple[float, float] | None = None
    all_pct: float | None = None

    @property
    def noise_ns(self) -> float | None:
        """How far runs of the baseline differ; None: not known."""
        return max(self.runs_ns) - min(self.runs_ns) if len(self.runs_ns) > 1 else None

    @property
    def is_uncertain(self) -> bool:
        """Whether it may be chance, or only the size is known."""
        return self.word == UNCERTAIN or self.word_reason in (ORDER, ONE_SPAN)


def step_verdict(comparison: Comparison, options: Mapping[str, Any]) -> StepVerdict:
    """Return the verdict."""
    if comparison.kind is None:
        word = comparison.word or NOT_COMPARABLE
        return StepVerdict(word, WORK if word == OTHER_WORK else COMPARABILITY, comparison)
    cells, adjusted = comparison.cells, comparison.cells.adjusted_ns or (None, None)
    (typical0, every0), (typical1, every1) = (
        choices(steps, cells, ns) for steps, ns in zip(comparison.steps, adjusted, strict=True)
    )
    typical, whole = (typical0, typical1), (every0, every1)
    if comparison.kind == SPAN:
        figure = Figure.of(whole)
        if figure is None:
            return StepVerdict(NOT_COMPARABLE, COMPARABILITY, comparison)
        # A span is one value: its size decides alone.
        word = FASTER if figure.change < 0 else SLOWER
        is_same = 100 * abs(figure.change) <= options["tolerance"]
        word = comparison.word or (SAME if is_same else word)
        return StepVerdict(word, ONE_SPAN, comparison, figure)
    looks = Looks.of(typical, whole)
    figure, chosen = Figure.of(typical, looks.difference), typical
    change = 0.0 if figure is None else figure.change
    if not looks.wants_typical(change, is_by_cell=cells.shares is not None):
        figure, chosen = Figure.of(whole), whole
    verdict = StepVerdict(
        NOT_COMPARABLE,
        COMPARABILITY,
        comparison,
        figure,
        looks,
        () if figure is None else tuple(_runs_ns(comparison, figure)),
        all_pct=_all_pct(whole, [side.steps.wall_ns for side in whole]),
    )
    if comparison.word == NOT_COMPARABLE:
        return verdict
    if comparison.word is not None:
        return replace(verdict, word=comparison.word, word_reason=WORK, token_ns=_token_ns(chosen))
    if figure is None:
        return verdict
    # Cells are compared by equal work: what all their steps take stands beside the figure.
    all_pct = 0.0 if cells.shares else _all_pct(whole, [side.program_ns for side in whole])
    word, reason = _decided(verdict, figure, looks, all_pct or 0.0, options["tolerance"])
    enough_n = _enough_n(figure, options["tolerance"]) if reason in (CHANCE, ORDER) else None
    return replace(verdict, word=word, word_reason=reason, enough_n=enough_n)


def _all_pct(whole: tuple[Chosen, Chosen], ns: Sequence[FloatArray]) -> float | None:
    weights = (side.weights(side.cell, side.kept) for side in whole)
    before, after = (float(some @ weight) for some, weight in zip(ns, weights, strict=True))
    return 100 * (after / before - 1) if before else None


def _decided(
    verdict: StepVerdict, figure: Figure, looks: Looks, all_pct: float, tolerance_pct: float
) -> tuple[str, str]:
    """Return word and reason; the change of all steps is without the profiler's own work."""
    change, runs_ns = figure.change, verdict.runs_ns
    noise, least = (verdict.noise_ns or 0.0) / figure.program_ns[0], LEAST_PCT / 100
    if not change:
        return SAME, TOLERANCE
    word = SLOWER if change > 0 else FASTER
    if abs(change) >= max(least, noise):
        is_against = max(all_pct * change, (verdict.all_pct or 0.0) * change) < 0
        if is_against and abs(all_pct) >= LEAST_PCT:
            return UNCERTAIN, MIXED
        reason = looks.reason(change)
        if reason is not None:
            return word, reason
        half_ns = prediction_half(runs_ns)
        if half_ns is not None and abs(figure.program_ns[1] - fmean(runs_ns)) > half_ns:
            return word, RUNS
        if looks.is_moved:
            return UNCERTAIN, MIXED
    elif verdict.noise_ns is not None and abs(change) >= least:
        return SAME, NOISE
    if not looks.difference or not figure.difference or min(figure.steps_n) < LEAST_STEPS:
        return UNCERTAIN, FEW_STEPS
    if abs(math.log1p(change)) + figure.difference.half_width() <= math.log1p(tolerance_pct / 100):
        return SAME, TOLERANCE
    return (PROBABLY + word, ORDER) if looks.is_ordered(change) else (UNCERTAIN, CHANCE)


def _enough_n(figure: Figure, tolerance_pct: float) -> int | None:
    """Return how many steps of each run decide in 80 % of captures, with such a spread."""
    size, steps_n = abs(math.log1p(figure.change)), min(figure.steps_n)
    narrow, difference = max(size, math.log1p(tolerance_pct / 100) - size), figure.difference
    if difference is None or not narrow:
        return None
    # Simulated: the correlation, which is an estimate too, costs as much as 1.2 effective steps.
    times = (_FOUND * difference.error / narrow) ** 2 + 2.4 / (difference.freedom + 2)
    return max(math.ceil(steps_n * times), steps_n + 1, _FOUND_STEPS)


def _token_ns(chosen: tuple[Chosen, Chosen]) -> tuple[float, float] | None:
    """Return the wall-clock time a token of each run, over the steps that make the figure."""
    times = []
    for side in chosen:
        tokens = np.array([max(tokens_of(work), 0) for work in side.steps.work])[side.kept]
        if not tokens.sum():
            return None
        wall_ns = (side.steps.wall_ns - side.adjusted_ns)[side.kept]
        times.append(float(wall_ns.sum() / tokens.sum()))
    return times[0], times[1]


def _runs_ns(comparison: Comparison, figure: Figure) -> Iterator[float]:
    """Yield the time of a step of the baseline, and of each further run that tells noise."""
    baseline = comparison.steps[0]
    yield figure.program_ns[0]
    for steps in comparison.repeats.values():
        if (steps.name, steps.unit) == (baseline.name, baseline.unit):
            mean_ns = choices(steps, comparison.cells, None)[0].mean_ns()
            if mean_ns is not None:
                yield mean_ns
