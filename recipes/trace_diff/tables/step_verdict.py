"""Whether the input is faster or slower in wall-clock time, and by what that is told.

Compared are full steps that do the same work, as far as their names say; else all of them by token,
or the GPUs' spans where there are no steps. Steps of a run's GPUs are coupled, so a step is one
value: the mean over GPUs. Time that the profiler took is no change of the program.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist, median
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.taxonomy.step_names import GRAPH, PERIOD
from nsys_llm.taxonomy.wall_classes import PROFILER
from nsys_llm.view.text import counted, quoted

from .rank_tests import compare_ranks
from .runs import Runs
from .step_splits import SPAN, STEP, TOKEN, RunSteps, StepBasis, mean_split, total
from .step_work_change import common_pct, other_sizes, same_launches
from .workload_match import COMMON_PCT, SAME_WORK_PCT, apart_pct

FASTER: Final = "FASTER"
SLOWER: Final = "SLOWER"
SAME: Final = "SAME"
OTHER_WORK: Final = "OTHER WORK"
NOT_COMPARABLE: Final = "NOT COMPARABLE"

#: A change below this is none, in percent; ours.
LEAST_PCT: Final = 1.0
#: So likely by chance, it is none.
ALPHA: Final = 0.05
#: Full steps of a run below which only the size is told.
LEAST_STEPS: Final = 5
#: Steps of the same work that both runs have, as a share of each run's steps, to compare by them.
_LEAST_COMMON: Final = Fraction(1, 2)
#: Points by which the mix of steps has to change to be said.
_MIX_POINTS: Final = Fraction(5, 100)
_CONFIDENCE: Final = 0.95
#: Units of steps that nobody has named.
_NAMELESS: Final = frozenset({GRAPH, PERIOD})
#: Tokens of which `_values` gives the time: of a token it would be a few nanoseconds.
_TOKENS: Final = 1000
#: Works that are named at most.
_MOST_WORKS: Final = 2


@dataclass(frozen=True)
class Yardstick:
    """What two runs are compared by.

    Attributes:
        basis: None where nothing is compared.
        word: `OTHER_WORK` or `NOT_COMPARABLE` where no verdict is given; None else.
        work: How the work or the mix of steps changed; None where it did not.
        reason: Why there is no verdict.
    """

    basis: StepBasis | None
    word: str | None = None
    work: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class StepVerdict:
    """The verdict.

    Attributes:
        word: One of the constants of this module.
        yardstick: What it is about.
        before_ns: Mean wall-clock time of a step (layer, token) of the baseline; None: not known.
        after_ns: Of the input.
        program_ns: Both without the profiler's own work.
        interval_ns: 95 % interval of the change; None with fewer than 2 steps of a run.
        p_value: Of Mann-Whitney's test; None likewise.
        noise_ns: How far runs of the baseline differ; None: not known.
        steps_n: Full steps of a GPU, of both.
        medians_ns: Of the steps without the profiler's own work, each the mean of GPUs; None with
            too few.
    """

    word: str
    yardstick: Yardstick
    before_ns: Fraction | None = None
    after_ns: Fraction | None = None
    program_ns: tuple[Fraction, Fraction] | None = None
    interval_ns: tuple[float, float] | None = None
    p_value: float | None = None
    noise_ns: Fraction | None = None
    steps_n: tuple[int, int] = (0, 0)
    medians_ns: tuple[float, float] | None = None

    @property
    def is_uncertain(self) -> bool:
        """Whether only the size is known, and not whether it is chance."""
        return self.word in (FASTER, SLOWER) and self.p_value is None and self.noise_ns is None


def step_verdict(runs: Runs, steps: Mapping[str, RunSteps], blocked: Sequence[str]) -> StepVerdict:
    """Return the verdict.

    Args:
        runs: All runs.
        steps: Of each, by side.
        blocked: Checks by which nothing is comparable.
    """
    before, after = steps[runs.baseline.side], steps[runs.input.side]
    if blocked:
        reason = ", ".join(blocked)
        return StepVerdict(NOT_COMPARABLE, Yardstick(None, NOT_COMPARABLE, None, reason))
    stick = _yardstick(runs, before, after)
    counts = before.steps_n, after.steps_n
    if stick.basis is None:
        return StepVerdict(stick.word or NOT_COMPARABLE, stick, steps_n=counts)
    sides = [mean_split(item.splits(stick.basis)) for item in (before, after)]
    walls = [total(side) for side in sides]
    program = [total(side) - total(side, PROFILER) for side in sides]
    noise_ns = _noise_ns(runs, steps, stick.basis, program[0])
    tested = [_values(item, stick.basis, before, program=True) for item in (before, after)]
    p_value, interval_ns, medians_ns, is_chance = None, None, None, False
    if stick.basis.kind != SPAN and min(map(len, tested)) >= LEAST_STEPS:
        p_value = _p_value(*tested)
        # The test tells small shifts of many steps, the interval means that a few steps make.
        low_ns, high_ns = _interval(*tested)
        is_chance = p_value >= ALPHA or low_ns <= 0 <= high_ns
        low_ns, high_ns = _interval(
            *(_values(item, stick.basis, before) for item in (before, after))
        )
        scale = _TOKENS if stick.basis.kind == TOKEN else 1
        interval_ns = low_ns / scale, high_ns / scale
        medians_ns = median(tested[0]) / scale, median(tested[1]) / scale
    word = stick.word or _word(program[0], program[1], is_chance=is_chance, noise_ns=noise_ns)
    return StepVerdict(
        word,
        stick,
        walls[0],
        walls[1],
        (program[0], program[1]),
        interval_ns,
        p_value,
        noise_ns,
        counts,
        medians_ns,
    )


def _word(before: Fraction, after: Fraction, *, is_chance: bool, noise_ns: Fraction | None) -> str:
    floor = max(before * Fraction(LEAST_PCT) / 100, noise_ns or Fraction(0))
    if abs(after - before) < floor or after == before or is_chance:
        return SAME
    return SLOWER if after > before else FASTER


def _yardstick(runs: Runs, before: RunSteps, after: RunSteps) -> Yardstick:
    """Return what the runs are compared by."""
    if before.unit == after.unit == SPAN:
        if not same_launches(runs.baseline, runs.input):
            reason = "no step found, and the runs launch other kernels, or not as many; give --step"
            return Yardstick(None, NOT_COMPARABLE, None, reason)
        return _checked(runs, StepBasis(SPAN, SPAN), None)
    if SPAN in (before.unit, after.unit):
        side = "baseline" if before.unit == SPAN else "input"
        return Yardstick(None, NOT_COMPARABLE, None, f"no step found in the {side}; give --step")
    if {before.unit, after.unit} <= _NAMELESS:
        return _of_periods(runs, before, after)
    if (before.name, before.unit) != (after.name, after.unit):
        reported = (
            f"a {before.unit} is {quoted(before.name)}, then a {after.unit} {quoted(after.name)}"
        )
        return Yardstick(None, OTHER_WORK, reported, f"{reported}; give --step")
    return _of_works(runs, before, after)


def _of_periods(runs: Runs, before: RunSteps, after: RunSteps) -> Yardstick:
    """Compare steps that nobody has named: the launches in them say whether they are alike."""
    unit = before.unit if before.unit == after.unit else PERIOD
    names = f"{quoted(before.name)}, then {quoted(after.name)}"
    if common_pct(runs.baseline, runs.input) < COMMON_PCT:
        reason = f"no step with a name, and mostly other kernels ({names}); give --step"
        return Yardstick(None, NOT_COMPARABLE, None, reason)
    checked = _checked(runs, StepBasis(STEP, unit), None)
    if checked.word is None or before.name == after.name:
        return checked
    reason = f"no step with a name, and what repeats is another ({names}); give --step"
    return Yardstick(None, NOT_COMPARABLE, None, reason)


def _of_works(runs: Runs, before: RunSteps, after: RunSteps) -> Yardstick:
    """Compare what the names of the steps say that they do."""
    counts = before.work_counts(), after.work_counts()
    common = counts[0].keys() & counts[1].keys()
    if not common and all(len(count) == 1 and ": " not in next(iter(count)) for count in counts):
        # A pattern of --step says that two names are one.
        return _checked(runs, StepBasis(STEP, before.unit), None)
    held = [Fraction(sum(count[work] for work in common), count.total()) for count in counts]
    amounts = any(": " in work for count in counts for work in count)
    if min(held) >= _LEAST_COMMON:
        weights = _weights(counts, common)
        basis = StepBasis(STEP, before.unit, weights)
        mix = _mix(counts)
        return Yardstick(basis, None, mix) if amounts else _checked(runs, basis, mix)
    tokens = [_tokens(item) for item in (before, after)]
    reported = f"the work of a {before.unit} changed: {_listed(counts[0])} -> {_listed(counts[1])}"
    if tokens[0] is None or tokens[1] is None:
        return Yardstick(None, OTHER_WORK, reported, reported)
    if apart_pct(round(1000 * tokens[0]), round(1000 * tokens[1])) <= SAME_WORK_PCT:
        return Yardstick(StepBasis(STEP, before.unit), None, None)
    means = " -> ".join(f"{float(token):,.4g}" for token in tokens if token is not None)
    reported = f"a {before.unit} does {means} tokens in the mean"
    return Yardstick(StepBasis(TOKEN, TOKEN), None, reported)


def _checked(runs: Runs, basis: StepBasis, mix: str | None) -> Yardstick:
    """Look at launches where the names of steps tell no amounts."""
    other = other_sizes(runs.baseline, runs.input, basis.weights)
    if other is None:
        return Yardstick(basis, None, mix)
    # Both sides are still told; only what it means is not.
    return Yardstick(basis, OTHER_WORK, other, f"{other}, and no token count is known")


def _weights(
    counts: tuple[Counter[str], Counter[str]], common: set[str]
) -> Mapping[str, Fraction] | None:
    """Return the mean share of each work in the steps of both runs; None where there is one."""
    if len(common) == 1 and all(len(count) == 1 for count in counts):
        return None
    wholes = [sum(count[work] for work in common) for count in counts]
    return {
        work: sum(
            (Fraction(count[work], whole) for count, whole in zip(counts, wholes, strict=True)),
            Fraction(0),
        )
        / 2
        for work in sorted(common)
    }


def _mix(counts: tuple[Counter[str], Counter[str]]) -> str | None:
    """Say how the mix of steps changed; None where it hardly did."""
    shares = [{work: Fraction(n, count.total()) for work, n in count.items()} for count in counts]
    works = sorted(set(shares[0]) | set(shares[1]))
    none = Fraction(0)
    moved = {work: shares[1].get(work, none) - shares[0].get(work, none) for work in works}
    if sum(map(abs, moved.values()), none) <= 2 * _MIX_POINTS:
        return None
    most = sorted(works, key=lambda work: (-abs(moved[work]), work))[:_MOST_WORKS]
    reported = [
        f"{quoted(work)} {100 * float(shares[0].get(work, 0)):.0f} -> "
        f"{100 * float(shares[1].get(work, 0)):.0f} % of the steps"
        for work in most
    ]
    return f"the mix of steps changed ({'; '.join(reported)}); steps of equal work are compared"


def _listed(counts: Counter[str]) -> str:
    reported = [quoted(work) for work, _ in counts.most_common(_MOST_WORKS)]
    more = len(counts) - len(reported)
    return ", ".join(reported) + (f" and {counted(more, 'other')}" if more else "")


def _tokens(steps: RunSteps) -> Fraction | None:
    """Return tokens a step, the mean of GPUs; None where one tells none."""
    reported = [
        None if gpu.tokens_n is None else Fraction(gpu.tokens_n, int(gpu.steps_n.sum()))
        for gpu in steps.gpus.values()
    ]
    known = [item for item in reported if item is not None]
    return sum(known, Fraction(0)) / len(known) if known and len(known) == len(reported) else None


def _noise_ns(
    runs: Runs, steps: Mapping[str, RunSteps], basis: StepBasis, before: Fraction
) -> Fraction | None:
    """Return how far runs of the baseline lie apart; None where none tells."""
    values = [before]
    for run in runs.noise:
        side_steps = steps[run.side]
        if (side_steps.name, side_steps.unit) != (
            steps[runs.baseline.side].name,
            steps[runs.baseline.side].unit,
        ):
            continue
        splits = side_steps.splits(basis)
        if splits:
            mean = mean_split(splits)
            values.append(total(mean) - total(mean, PROFILER))
    return max(values) - min(values) if len(values) > 1 else None


def _values(
    steps: RunSteps, basis: StepBasis, before: RunSteps, *, program: bool = False
) -> list[int]:
    """Return the time of each step, ns, the mean of all GPUs; steps that some GPU lacks are out.

    Of several works, each step is scaled to the mean of the baseline's, so that equal ones differ
    by their speed alone.

    Args:
        steps: Of one run.
        basis: What is compared.
        before: The baseline's.
        program: Without the profiler's own work.
    """
    sums: dict[int, tuple[int, float]] = {}
    scale = _scales(before, basis)
    for gpu in steps.gpus.values():
        gpu_steps = gpu.steps
        took_ns = gpu_steps.wall_ns - gpu_steps.profiler_ns if program else gpu_steps.wall_ns
        rows = zip(
            gpu_steps.number.tolist(),
            gpu_steps.work.tolist(),
            gpu_steps.tokens_n.tolist(),
            took_ns.tolist(),
            strict=True,
        )
        for number, work, tokens_n, ns in rows:
            if basis.kind == TOKEN:
                factor = 0.0 if tokens_n in (NULL_INT, 0) else _TOKENS / tokens_n
            else:
                factor = scale.get(gpu.works[work], 0.0) if scale else 1.0
            if factor:
                n, so_far = sums.get(number, (0, 0.0))
                sums[number] = n + 1, so_far + ns * factor
    gpus_n = len(steps.gpus)
    return [round(ns / gpus_n) for _, (n, ns) in sorted(sums.items()) if n == gpus_n]


def _scales(before: RunSteps, basis: StepBasis) -> dict[str, float]:
    """Return by what steps of each work are scaled; nothing where there is one work."""
    if basis.weights is None:
        return {}
    means = {}
    for work in basis.weights:
        work_basis = StepBasis(STEP, basis.unit, {work: Fraction(1)})
        means[work] = float(total(mean_split(before.splits(work_basis))))
    whole = float(total(mean_split(before.splits(basis))))
    return {work: whole / mean for work, mean in means.items() if mean}


def _p_value(before: Sequence[int], after: Sequence[int]) -> float:
    first, second = (
        ValueCounts.from_values(np.zeros(len(item), dtype=np.int64), np.array(item, dtype=np.int64))
        for item in (before, after)
    )
    return float(compare_ranks(first, second, 1).p_value[0])


def _interval(before: Sequence[int], after: Sequence[int]) -> tuple[float, float]:
    """Return Welch's interval of the difference of two means; both have 2 values or more."""
    means = [float(np.mean(item)) for item in (before, after)]
    parts = [float(np.var(item, ddof=1)) / len(item) for item in (before, after)]
    change, spread = means[1] - means[0], sum(parts)
    if not spread:
        return change, change
    freedom = spread**2 / math.fsum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (before, after), strict=True)
    )
    away = _student(freedom) * math.sqrt(spread)
    return change - away, change + away


def _student(freedom: float) -> float:
    """Return the quantile of Student's distribution; below 1 % off from 4 degrees of freedom on.

    Source: G. W. Hill, Communications of the ACM 13 (1970), the expansion about the normal one.
    """
    z = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))
