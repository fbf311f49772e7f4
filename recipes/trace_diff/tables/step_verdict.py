"""Whether the input is faster or slower in wall-clock time, and whether that is more than chance.

Two looks. Bursts: a step is slow above twice the median of its own run, and Fisher's exact test
tells whether one run has more of them. Location: Welch's t on the logarithms of the other steps,
which count as fewer where neighbors are alike. Time that the profiler took is no change of the
program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from nsys_llm.numeric.two_samples import Difference, fisher_p

from .chosen_steps import Chosen, choices
from .comparability import NOT_COMPARABLE, OTHER_WORK, Comparison
from .equal_work import LEAST_STEPS, tokens_of
from .step_splits import SPAN, Gpu, Split, mean_split, program_ns, total

FASTER: Final = "FASTER"
SLOWER: Final = "SLOWER"
SAME: Final = "SAME"
UNCERTAIN: Final = "UNCERTAIN"

#: Why the word is what it is.
LOCATION: Final = "location"
BURSTS: Final = "bursts"
BOTH: Final = "location and bursts"
TOLERANCE: Final = "tolerance"
NOISE: Final = "noise"
FEW_STEPS: Final = "few_steps"
CHANCE: Final = "chance"
ONE_SPAN: Final = "one_span"
WORK: Final = "work"
COMPARABILITY: Final = "comparability"

#: A change below this is none, in percent; ours.
LEAST_PCT: Final = 1.0
#: So likely by chance, it is none: of bursts, and of the location of steps.
BURSTS_ALPHA: Final = 0.05
LOCATION_ALPHA: Final = 0.025
#: Independent steps of a run below which no location is sure.
LEAST_EFFECTIVE: Final = 8.0
#: Standard errors of a change that the test finds in 80 % of captures: normal quantiles of
#: 1 - LOCATION_ALPHA / 2 and of 0.8.
_FOUND: Final = 2.24 + 0.84
#: Simulated: with so many times LEAST_EFFECTIVE, 80 % of captures have it by their estimates.
_SURE_TIMES: Final = 2.0


@dataclass(frozen=True)
class Figure:
    """How long a step of both runs is.

    Attributes:
        chosen: Steps of baseline and input that make it.
        splits: Of both, of each GPU.
        step_ns: Mean wall-clock time of a step of both.
        program_ns: Without the profiler's own work.
        interval: 95 % interval of the change relative to the baseline; None with fewer than 5
            steps of a run.
        error: Relative standard error of the change.
    """

    chosen: tuple[Chosen, Chosen]
    splits: tuple[Mapping[Gpu, Split], Mapping[Gpu, Split]]
    step_ns: tuple[float, float]
    program_ns: tuple[float, float]
    interval: tuple[float, float] | None
    error: float

    @classmethod
    def of(cls, chosen: tuple[Chosen, Chosen]) -> Figure | None:
        """Return the figure of some steps; None where a run has none of them."""
        (first, splits0), (second, splits1) = ((side, side.splits()) for side in chosen)
        if not splits0 or not splits1:
            return None
        means = mean_split(splits0), mean_split(splits1)
        before, after = map(total, means)
        program0, program1 = map(program_ns, means)
        interval, error = None, 0.0
        if min(int(side.kept.sum()) for side in chosen) >= LEAST_STEPS and before > 0 < after:
            relative = [side.sample(side.cell_means_ns(), np.asarray) for side in (first, second)]
            difference = Difference.of(*relative)
            width, log = difference.half_width(), math.log(after / before)
            interval = math.expm1(log - width), math.expm1(log + width)
            error = difference.error
        step_ns, program = (before, after), (program0, program1)
        return cls(chosen, (splits0, splits1), step_ns, program, interval, error)

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

    def program_interval(self) -> tuple[float, float]:
        """Return the interval of the change without the profiler's time: as wide as that with."""
        if self.interval is None:
            return -1.0, math.inf
        shown = self.step_ns[1] / self.step_ns[0]
        low, high = ((1 + end) / shown * (1 + self.change) - 1 for end in self.interval)
        return low, high


@dataclass(frozen=True)
class Looks:
    """What both looks tell: of bursts, and of the location of the other steps.

    Attributes:
        slow_n: Steps above twice the median, of baseline and input; adjacent ones of one pause
            count once.
        steps_n: All that are compared, likewise.
        slow_p: Fisher's p, one-sided in the direction seen; None with too few steps.
        difference: Of the logarithms of typical steps; None with too few.
        effective_n: As many independent steps would tell as much, of both runs.
    """

    slow_n: tuple[int, int]
    steps_n: tuple[int, int]
    slow_p: float | None
    difference: Difference | None
    effective_n: tuple[float, float]

    @classmethod
    def of(cls, typical: tuple[Chosen, Chosen], whole: tuple[Chosen, Chosen]) -> Looks:
        """Look at the typical steps of both runs, and at all."""
        counts = [side.slow_count() for side in whole]
        (k0, n0), (k1, n1) = counts
        slow_p = None
        if min(n0, n1) >= LEAST_STEPS:
            slow_p = fisher_p(*(counts if k1 * n0 > k0 * n1 else counts[::-1]))
        if min(int(side.kept.sum()) for side in typical) < LEAST_STEPS:
            return cls((k0, k1), (n0, n1), slow_p, None, (0.0, 0.0))
        means = typical[0].cell_means_ns()
        first, second = (side.sample(means, np.log) for side in typical)
        effective_n = first.effective_n, second.effective_n
        return cls((k0, k1), (n0, n1), slow_p, Difference.of(first, second), effective_n)

    @property
    def p_value(self) -> float | None:
        """Of Welch's t; None with too few steps."""
        return None if self.difference is None else self.difference.p_value

    @property
    def is_burst(self) -> bool:
        """Whether one of the runs has more slow steps than chance gives."""
        return self.slow_p is not None and self.slow_p < BURSTS_ALPHA

    @property
    def is_moved(self) -> bool:
        """Whether typical steps differ by more than chance gives."""
        if self.p_value is None or min(self.effective_n) < LEAST_EFFECTIVE:
            return False
        return self.p_value < LOCATION_ALPHA

    def wants_typical(self, *, is_by_cell: bool) -> bool:
        """Tell whether the figure leaves slow steps out: they do not tell the runs apart."""
        (k0, k1), (n0, n1) = self.slow_n, self.steps_n
        return not self.is_burst and (self.is_moved or is_by_cell or k1 * n0 == k0 * n1)

    @property
    def reason(self) -> str | None:
        """What tells the runs apart; None where nothing does."""
        if self.is_moved:
            return BOTH if self.is_burst else LOCATION
        return BURSTS if self.is_burst else None


@dataclass(frozen=True)
class StepVerdict:
    """The verdict.

    Attributes:
        figure: None where nothing is compared.
        looks: None without steps.
        noise_ns: How far runs of the baseline differ; None: not known.
        enough_n: Steps of each run that would decide; None where it is decided or not known.
        token_ns: Time a token of both runs, where work differs; None: not known.
        all_pct: Change of the mean of all steps, slow ones and ends of cells included.
    """

    word: str
    word_reason: str
    comparison: Comparison
    figure: Figure | None = None
    looks: Looks | None = None
    noise_ns: float | None = None
    enough_n: int | None = None
    token_ns: tuple[float, float] | None = None
    all_pct: float | None = None

    @property
    def is_uncertain(self) -> bool:
        """Whether only the size is known, and not whether it is chance."""
        return self.word == UNCERTAIN or (self.word_reason == ONE_SPAN and self.noise_ns is None)


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
    looks = None if comparison.kind == SPAN else Looks.of(typical, whole)
    wants_typical = looks and looks.wants_typical(is_by_cell=cells.shares is not None)
    figure = Figure.of(typical if wants_typical else whole)
    if looks is None and figure is not None:
        word = _word_of_spans(figure, options["tolerance"])
        return StepVerdict(word, ONE_SPAN, comparison, figure)
    if looks is None:
        return StepVerdict(NOT_COMPARABLE, COMPARABILITY, comparison)
    before, after = (
        float((side.steps.wall_ns * side.weights(side.cell, side.kept)).sum()) for side in whole
    )
    verdict = StepVerdict(
        NOT_COMPARABLE,
        COMPARABILITY,
        comparison,
        figure,
        looks,
        None if figure is None else _noise_ns(comparison, figure),
        all_pct=100 * (after / before - 1) if before else None,
    )
    if comparison.word is not None:
        token_ns = _token_ns(typical if wants_typical else whole)
        return replace(verdict, word=comparison.word, word_reason=WORK, token_ns=token_ns)
    if figure is None:
        return verdict
    word, reason = _decided(figure, looks, verdict.noise_ns, options["tolerance"])
    verdict = replace(verdict, word=word, word_reason=reason)
    if word != UNCERTAIN or looks.difference is None:
        return verdict
    return replace(
        verdict, enough_n=_enough_n(figure, options["tolerance"], min(looks.effective_n))
    )


def _word_of_spans(figure: Figure, tolerance_pct: float) -> str:
    """Decide by the size alone: a span is one value."""
    if 100 * abs(figure.change) <= tolerance_pct:
        return SAME
    return FASTER if figure.change < 0 else SLOWER


def _decided(
    figure: Figure, looks: Looks, noise_ns: float | None, tolerance_pct: float
) -> tuple[str, str]:
    """Return word and reason."""
    change, noise = figure.change, (noise_ns or 0.0) / figure.program_ns[0]
    if not change:
        return SAME, TOLERANCE
    if looks.difference is None or min(figure.steps_n) < LEAST_STEPS:
        return UNCERTAIN, FEW_STEPS
    if abs(change) >= max(LEAST_PCT / 100, noise):
        if looks.reason is not None:
            return SLOWER if change > 0 else FASTER, looks.reason
    elif noise_ns is not None and abs(change) >= LEAST_PCT / 100:
        return SAME, NOISE
    if max(map(abs, figure.program_interval())) <= tolerance_pct / 100:
        return SAME, TOLERANCE
    return UNCERTAIN, CHANCE if min(looks.effective_n) >= LEAST_EFFECTIVE else FEW_STEPS


def _enough_n(figure: Figure, tolerance_pct: float, effective_n: float) -> int | None:
    """Return how many steps of each run decide in 80 % of captures, with such a spread."""
    size, steps_n = abs(math.log1p(figure.change)), min(figure.steps_n)
    narrow = max(size, math.log1p(tolerance_pct / 100) - size)
    if steps_n < LEAST_STEPS or not narrow or not effective_n or figure.interval is None:
        return None
    times = max((_FOUND * figure.error / narrow) ** 2, _SURE_TIMES * LEAST_EFFECTIVE / effective_n)
    return max(math.ceil(steps_n * times), steps_n + 1)


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


def _noise_ns(comparison: Comparison, figure: Figure) -> float | None:
    """Return how far runs of the baseline lie apart; None where none tells."""
    baseline = comparison.steps[0]
    values = [figure.program_ns[0]]
    for steps in comparison.repeats.values():
        if (steps.name, steps.unit) == (baseline.name, baseline.unit):
            mean_ns = choices(steps, comparison.cells, None)[0].mean_ns()
            values += [] if mean_ns is None else [mean_ns]
    return max(values) - min(values) if len(values) > 1 else None
