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
from nsys_llm.taxonomy.wall_classes import PROFILER

from .chosen_steps import Chosen, choices, run_program_ns, slow_count
from .comparability import NOT_COMPARABLE, OTHER_WORK, Comparison
from .equal_work import LEAST_STEPS, tokens_of
from .runs import Runs
from .step_splits import (
    SPAN,
    FloatArray,
    RunSteps,
    Split,
    mean_split,
    total,
)

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
#: 95 % of a normal distribution lie within so many standard deviations of its mean.
_NORMAL: Final = 1.96


@dataclass(frozen=True)
class Bursts:
    """Steps above twice the median: how many there are, adjacent ones of one pause as one.

    Attributes:
        slow_n: Of the baseline and of the input.
        steps_n: Likewise, all that are compared.
        p_value: Fisher's, one-sided in the direction seen; None with too few steps.
    """

    slow_n: tuple[int, int]
    steps_n: tuple[int, int]
    p_value: float | None

    @property
    def are_more(self) -> bool:
        """Whether the input has more of them."""
        return self.slow_n[1] * self.steps_n[0] > self.slow_n[0] * self.steps_n[1]

    @property
    def is_alike(self) -> bool:
        """Whether both runs have the same share of them."""
        return self.slow_n[1] * self.steps_n[0] == self.slow_n[0] * self.steps_n[1]

    @property
    def is_significant(self) -> bool:
        """Whether one of the runs has more of them than chance gives."""
        return self.p_value is not None and self.p_value < BURSTS_ALPHA


@dataclass(frozen=True)
class StepVerdict:
    """The verdict.

    Attributes:
        word: One of the constants of this module.
        word_reason: Why, one of the constants.
        comparison: What it is about.
        chosen: Steps of baseline and input that make the figure; None where nothing is compared.
        splits: Of baseline and input, of each GPU.
        before_ns: Mean wall-clock time of a step of the baseline; None: not known.
        after_ns: Of the input.
        program_ns: Both without the profiler's own work.
        interval: 95 % interval of the change relative to the baseline; None with fewer than 5
            steps of a run.
        error: Relative standard error of the change.
        p_value: Of Welch's t on logarithms; None likewise.
        bursts: None without steps.
        noise_ns: How far runs of the baseline differ; None: not known.
        enough_n: Steps of each run that would decide; None where it is decided or not known.
        token_ns: Time a token of both runs, where work differs; None: not known.
        all_pct: Change of the mean of all steps, slow ones and ends of cells included.
    """

    word: str
    word_reason: str
    comparison: Comparison
    chosen: tuple[Chosen, Chosen] | None = None
    splits: tuple[Mapping[tuple[int, int], Split], Mapping[tuple[int, int], Split]] = ({}, {})
    before_ns: float | None = None
    after_ns: float | None = None
    program_ns: tuple[float, float] | None = None
    interval: tuple[float, float] | None = None
    error: float = 0.0
    p_value: float | None = None
    bursts: Bursts | None = None
    noise_ns: float | None = None
    enough_n: int | None = None
    token_ns: tuple[float, float] | None = None
    all_pct: float | None = None

    @property
    def steps_n(self) -> tuple[int, int]:
        """Full steps of a GPU that are compared, of both runs."""
        if self.chosen is None or self.comparison.cells.shares is None:
            before, after = self.comparison.steps
            return before.steps_n, after.steps_n
        first, second = (
            int((side.cell >= 0).sum()) // max(np.unique(side.series.gpu).size, 1)
            for side in self.chosen
        )
        return first, second

    @property
    def is_uncertain(self) -> bool:
        """Whether only the size is known, and not whether it is chance."""
        return self.word == UNCERTAIN or (self.word_reason == ONE_SPAN and self.noise_ns is None)


def step_verdict(
    runs: Runs,
    comparison: Comparison,
    all_steps: Mapping[str, RunSteps],
    options: Mapping[str, Any],
) -> StepVerdict:
    """Return the verdict.

    Args:
        runs: All runs.
        comparison: What they are compared by.
        all_steps: Steps of each run by side, for the noise of further runs of the baseline.
        options: tolerance.
    """
    if comparison.kind is None:
        word = comparison.word or NOT_COMPARABLE
        return StepVerdict(word, WORK if word == OTHER_WORK else COMPARABILITY, comparison)
    typical, whole = choices(comparison)
    if comparison.kind == SPAN:
        return _of_spans(_figure(comparison, whole), options)
    looks = _Looks.of(comparison, typical, whole)
    cells = comparison.cells
    chosen = typical if looks.wants_typical(is_by_cell=cells.shares is not None) else whole
    verdict = _figure(comparison, chosen)
    verdict = replace(
        verdict,
        p_value=looks.p_value,
        bursts=looks.bursts,
        noise_ns=_noise_ns(runs, all_steps, verdict),
        all_pct=_percent(*(_mean_wall(side) for side in whole)),
    )
    if comparison.word is not None:
        return replace(verdict, word=comparison.word, word_reason=WORK, token_ns=_tokens(chosen))
    return _decided(verdict, looks, options["tolerance"])


@dataclass(frozen=True)
class _Looks:
    """What both looks tell: of bursts, and of the location of the other steps."""

    bursts: Bursts
    difference: Difference | None
    effective_n: float

    @classmethod
    def of(
        cls,
        comparison: Comparison,
        typical: tuple[Chosen, Chosen],
        whole: tuple[Chosen, Chosen],
    ) -> _Looks:
        bursts = _bursts(whole)
        if min(int(side.kept.sum()) for side in typical) < LEAST_STEPS:
            return cls(bursts, None, 0.0)
        means = _cell_means(typical[0])
        samples = [side.logs(means) for side in typical]
        effective_n = min(sample.effective_n for sample in samples)
        return cls(bursts, Difference.of(*samples), effective_n)

    @property
    def p_value(self) -> float | None:
        return None if self.difference is None else self.difference.p_value

    @property
    def is_moved(self) -> bool:
        """Whether typical steps differ by more than chance gives."""
        if self.difference is None or self.effective_n < LEAST_EFFECTIVE:
            return False
        return self.difference.p_value < LOCATION_ALPHA

    def wants_typical(self, *, is_by_cell: bool) -> bool:
        """Whether the figure leaves slow steps out: where they do not tell the runs apart."""
        same_share = self.bursts.is_alike
        return not self.bursts.is_significant and (self.is_moved or is_by_cell or same_share)


def _bursts(whole: tuple[Chosen, Chosen]) -> Bursts:
    counts = [slow_count(side) for side in whole]
    (k0, n0), (k1, n1) = counts
    p_value = None
    if min(n0, n1) >= LEAST_STEPS:
        more, less = (counts[1], counts[0]) if k1 * n0 > k0 * n1 else (counts[0], counts[1])
        p_value = fisher_p(less, more)
    return Bursts((k0, k1), (n0, n1), p_value)


def _cell_means(chosen: Chosen) -> FloatArray:
    means = np.ones(chosen.shares.size)
    for code in np.unique(chosen.cell[chosen.kept]).tolist():
        means[code] = chosen.program_ns[chosen.kept & (chosen.cell == code)].mean()
    return means


def _figure(comparison: Comparison, chosen: tuple[Chosen, Chosen]) -> StepVerdict:
    """Return the figure of some steps, with its interval."""
    splits = [side.split(steps) for side, steps in zip(chosen, comparison.steps, strict=True)]
    if not all(splits):
        return StepVerdict(NOT_COMPARABLE, COMPARABILITY, comparison)
    means = [mean_split(side) for side in splits]
    before, after = (total(mean) for mean in means)
    program = [total(mean) - total(mean, PROFILER) for mean in means]
    interval, error = None, 0.0
    if min(int(side.kept.sum()) for side in chosen) >= LEAST_STEPS and before > 0 < after:
        difference = Difference.of(*(side.relative() for side in chosen))
        width, error = difference.half_width(), difference.error
        log = math.log(after / before)
        interval = math.expm1(log - width), math.expm1(log + width)
    return StepVerdict(
        UNCERTAIN,
        CHANCE,
        comparison,
        chosen,
        (splits[0], splits[1]),
        before,
        after,
        (program[0], program[1]),
        interval,
        error,
    )


def _of_spans(verdict: StepVerdict, options: Mapping[str, Any]) -> StepVerdict:
    """Decide by the size alone: a span is one value."""
    if verdict.program_ns is None:
        return verdict
    before, after = verdict.program_ns
    pct = 100 * (after - before) / before if before else 0.0
    word = SAME if abs(pct) <= options["tolerance"] else FASTER if pct < 0 else SLOWER
    return replace(verdict, word=word, word_reason=ONE_SPAN)


def _decided(verdict: StepVerdict, looks: _Looks, tolerance_pct: float) -> StepVerdict:
    if verdict.program_ns is None:
        return verdict
    before, after = verdict.program_ns
    change = (after - before) / before
    noise = (verdict.noise_ns or 0.0) / before
    faster_or_slower = SLOWER if change > 0 else FASTER
    if not change:
        return replace(verdict, word=SAME, word_reason=TOLERANCE)
    if looks.difference is None or min(verdict.steps_n) < LEAST_STEPS:
        return replace(verdict, word=UNCERTAIN, word_reason=FEW_STEPS)
    if abs(change) >= max(LEAST_PCT / 100, noise):
        if looks.is_moved or looks.bursts.is_significant:
            reasons = {(True, True): BOTH, (True, False): LOCATION, (False, True): BURSTS}
            reason = reasons[looks.is_moved, looks.bursts.is_significant]
            return replace(verdict, word=faster_or_slower, word_reason=reason)
    elif verdict.noise_ns is not None and abs(change) >= LEAST_PCT / 100:
        return replace(verdict, word=SAME, word_reason=NOISE)
    low, high = _program_interval(verdict, change)
    if max(abs(low), abs(high)) <= tolerance_pct / 100:
        return replace(verdict, word=SAME, word_reason=TOLERANCE)
    reason = CHANCE if looks.effective_n >= LEAST_EFFECTIVE else FEW_STEPS
    enough_n = _enough_n(verdict, change, tolerance_pct / 100, looks.effective_n)
    return replace(verdict, word=UNCERTAIN, word_reason=reason, enough_n=enough_n)


def _program_interval(verdict: StepVerdict, change: float) -> tuple[float, float]:
    """Return the interval of the change without the profiler's time: as wide as that with it."""
    if verdict.interval is None or verdict.before_ns is None or verdict.after_ns is None:
        return -1.0, math.inf
    shown = verdict.after_ns / verdict.before_ns
    low, high = ((1 + end) / shown * (1 + change) - 1 for end in verdict.interval)
    return low, high


def _enough_n(
    verdict: StepVerdict, change: float, tolerance: float, effective_n: float
) -> int | None:
    """Return how many steps of each run would decide: an interval that is narrow enough."""
    narrow = max(abs(change), tolerance - abs(change))
    if not narrow or not effective_n or verdict.interval is None:
        return None
    wanted = max((_NORMAL * verdict.error / narrow) ** 2, LEAST_EFFECTIVE / effective_n)
    steps_n = min(verdict.steps_n)
    return max(math.ceil(1.1 * steps_n * wanted), steps_n + 1)


def _tokens(chosen: tuple[Chosen, Chosen]) -> tuple[float, float] | None:
    """Return the wall-clock time a token of each run, over the steps that make the figure."""
    times = []
    for side in chosen:
        tokens = np.array([max(tokens_of(work), 0) for work in side.series.work])[side.kept]
        if not tokens.sum():
            return None
        wall_ns = (side.series.wall_ns - side.adjusted_ns)[side.kept]
        times.append(float(wall_ns.sum() / tokens.sum()))
    return times[0], times[1]


def _mean_wall(chosen: Chosen) -> float:
    return float((chosen.series.wall_ns * chosen.weights).sum())


def _percent(before: float, after: float) -> float | None:
    return 100 * (after / before - 1) if before else None


def _noise_ns(runs: Runs, all_steps: Mapping[str, RunSteps], verdict: StepVerdict) -> float | None:
    """Return how far runs of the baseline lie apart; None where none tells."""
    if verdict.program_ns is None:
        return None
    baseline = verdict.comparison.steps[0]
    values = [verdict.program_ns[0]]
    for run in runs.noise:
        steps = all_steps[run.side].only(runs.common)
        if (steps.name, steps.unit) != (baseline.name, baseline.unit):
            continue
        program_ns = run_program_ns(verdict.comparison, steps)
        if program_ns is not None:
            values.append(program_ns)
    return max(values) - min(values) if len(values) > 1 else None
