"""Whether two runs are comparable, and by what: ranks, then work. All of it is decided here.

First the ranks that both have; then steps of equal work (see `equal_work`), periods of kernels
where a run was recorded without ranges, or the GPUs' spans where there are no steps. What keeps all
of a run, sums over it or times per step from being compared are the checks (see `checks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from nsys_llm.facts.compared.rank import RankSums
from nsys_llm.facts.compared.step_walls import StepWalls
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.taxonomy.cuda_codes import MoveKind
from nsys_llm.taxonomy.step_names import GRAPH, PERIOD
from nsys_llm.view.text import format_bytes, format_count, format_percent, quoted

from . import equal_work as equal
from .checks import (
    ALL,
    COMMON_PCT,
    GPU,
    SAME_GRID_PCT,
    SAME_WORK_PCT,
    STEP_TIMES,
    TOTALS,
    WORK,
    Check,
    apart_pct,
    check_row,
    check_words,
    common_launches_pct,
    common_names_pct,
    run_checks,
)
from .chosen_steps import step_kernels
from .equal_work import ALL_ALIKE, Cells
from .runs import Runs, RunSums
from .step_splits import SPAN, FloatArray, Mask, RunSteps

OTHER_WORK: Final = "OTHER WORK"
NOT_COMPARABLE: Final = "NOT COMPARABLE"
#: What is compared.
STEP: Final = "step"

#: Share of kernel time in common launches, from which spans hold the same work.
_SAME_SPAN_PCT: Final = 98.0
#: Bytes of copies in a direction that differ by less are the same; kernels that hold less of the
#: spans do not matter to them.
_SAME_BYTES_PCT: Final = 2.0
_FEW_KERNELS_PCT: Final = 5.0
#: Share of launches, or of kernel time, at other sizes from which steps do other work; ours.
_MOST_PCT: Final = 50.0
#: Steps of an engine of which the name is no format, from which compositions are not told.
_UNPARSED_PCT: Final = 5.0
_NAMELESS: Final = frozenset({GRAPH, PERIOD})
_NO_NAMES: Final = _NAMELESS | {SPAN}
_NAME_STEPS: Final = "give --step"

#: Which walls of a rank are compared.
WallsOf = Callable[[RankSums], StepWalls]
StepsOf = Callable[[RunSums, WallsOf], RunSteps]


@dataclass(frozen=True)
class Comparison:
    """What two runs are compared by.

    Attributes:
        kind: `STEP` or `SPAN`; None where nothing is compared.
        unit: What people call it: step, layer, decode step, window.
        word: `OTHER_WORK` or `NOT_COMPARABLE` where no verdict is given; None else.
        work: How the work or the mix of steps changed; None where it did not.
        repeats: Steps of further runs of the baseline that tell noise, by side.
    """

    kind: str | None
    unit: str
    steps: tuple[RunSteps, RunSteps]
    cells: Cells = ALL_ALIKE
    word: str | None = None
    work: str | None = None
    reason: str | None = None
    checks: tuple[Check, ...] = ()
    repeats: Mapping[str, RunSteps] = field(default_factory=dict)

    def blocked(self, status: str) -> list[Check]:
        """Return the checks that keep all, sums over the runs or times per step from comparison."""
        return [check for check in self.checks if check["status"] == status]


def compare(runs: Runs, steps_of: StepsOf, options: Mapping[str, Any]) -> Comparison:
    """Return what two runs are compared by."""
    named = {run.side: steps_of(run, _named) for run in runs.all}
    checks = run_checks(runs, named, options)

    def nothing(walls: WallsOf) -> Comparison:
        before, after = (
            named[run.side] if walls is _named else steps_of(run, walls) for run in runs.compared
        )
        steps = before, after
        return Comparison(None, SPAN, steps, word=NOT_COMPARABLE, checks=tuple(checks))

    comparison = _compared(runs, nothing)
    if blocked := "; ".join(map(check_words, comparison.blocked(ALL))):
        # What each GPU takes stands side by side, without a verdict.
        comparison = replace(comparison, word=NOT_COMPARABLE, reason=blocked)
    checks += _work_checks(comparison)
    repeats = {run.side: named[run.side] for run in runs.noise}
    return replace(comparison, checks=tuple(checks), repeats=repeats)


def _compared(runs: Runs, nothing: Callable[[WallsOf], Comparison]) -> Comparison:
    named = nothing(_named)
    if {check["check"] for check in named.blocked(ALL)} - {GPU}:
        return named
    before, after = named.steps
    units = {before.unit, after.unit}
    if not units & _NO_NAMES:
        if (before.name, before.unit) == (after.name, after.unit):
            return _of_steps(runs, replace(named, unit=before.unit))
        names = (
            f"a {before.unit} is {quoted(before.name)}, then a {after.unit} {quoted(after.name)}"
        )
        return replace(named, word=OTHER_WORK, work=names, reason=f"{names}; {_NAME_STEPS}")
    # Else graph replays or periods of kernels, where there are any beside the steps.
    for some in (named, nothing(lambda sums: sums.nameless or sums.walls)):
        if {steps.unit for steps in some.steps} <= _NAMELESS:
            return _of_periods(runs, some)
    spans = _of_spans(runs, nothing(lambda sums: sums.whole or sums.walls))
    if spans.word is None or units == {SPAN}:
        return spans
    side = "baseline" if before.unit in _NO_NAMES else "input"
    return replace(named, reason=f"no step found in the {side}; {_NAME_STEPS}")


def _named(sums: RankSums) -> StepWalls:
    return sums.walls


def _work_checks(comparison: Comparison) -> Iterator[Check]:
    """Yield the checks of what a step does, and of what all steps do where that differs too."""
    nothing = None, None
    if comparison.kind != STEP and comparison.word != OTHER_WORK:
        yield check_row(WORK, nothing, same="no steps of equal work are known")
        return
    yield check_row(
        WORK,
        nothing,
        (comparison.word == OTHER_WORK, STEP_TIMES, f"another amount of work: {comparison.work}"),
        (comparison.work is not None, TOTALS, str(comparison.work)),
        same="about as much in a step",
    )


def _of_spans(runs: Runs, nothing: Comparison) -> Comparison:
    """Compare the spans of GPUs without steps, where they hold the same work."""
    spans = replace(nothing, kind=SPAN, word=None)
    if common_launches_pct(runs) >= _SAME_SPAN_PCT:
        return spans
    before, after = (_bytes(run) for run in runs.compared)
    kernels_pct = max(100 * run.kernel_ns / max(run.whole.window_ns, 1) for run in runs.compared)
    same = before.keys() == after.keys() and all(
        apart_pct(before[kind], after[kind]) <= _SAME_BYTES_PCT for kind in before
    )
    if before and same and kernels_pct < _FEW_KERNELS_PCT:
        launches = " -> ".join(format_count(run.launches_n) for run in runs.compared)
        work = (
            f"for the same {format_bytes(sum(before.values()))} of copies (the kernels differ: "
            f"{launches} launches, {kernels_pct:.0f} % of the span)"
        )
        return replace(spans, work=work)
    reason = f"no step found, and the runs launch other kernels, or not as many; {_NAME_STEPS}"
    return replace(nothing, reason=reason)


def _bytes(run: RunSums) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for code, (_, _, size) in run.moves.items():
        kind = MoveKind.of(code).kind
        if kind != "memset":
            sums[kind] += size
    return {kind: size for kind, size in sums.items() if size}


def _of_periods(runs: Runs, nothing: Comparison) -> Comparison:
    """Compare steps that nobody has named: the launches in them say whether they are alike."""
    before, after = nothing.steps
    unit = before.unit if before.unit == after.unit else PERIOD
    names = f"{quoted(before.name)}, then {quoted(after.name)}"
    if min(common_names_pct(runs)) < COMMON_PCT:
        reason = f"no step with a name, and mostly other kernels ({names}); {_NAME_STEPS}"
        return replace(nothing, reason=reason)
    checked = _checked(runs, replace(nothing, kind=STEP, unit=unit, word=None))
    if checked.word is None or before.name == after.name:
        return checked
    reason = f"no step with a name, and what repeats is another ({names}); {_NAME_STEPS}"
    return replace(nothing, reason=reason)


def _of_steps(runs: Runs, nothing: Comparison) -> Comparison:
    """Compare steps of equal work, as far as their names say what they do."""
    before, after = nothing.steps
    some = replace(nothing, kind=STEP, word=None)
    if not len(before) or not len(after):
        return replace(nothing, reason="no full step that all GPUs of a run have")
    unparsed = max(steps.unparsed_n / max(steps.steps_n, 1) for steps in nothing.steps)
    if 100 * unparsed > _UNPARSED_PCT:
        note = f"{format_percent(100 * unparsed)} of the steps have a name of no known format"
        return _checked(runs, replace(some, cells=replace(ALL_ALIKE, note=note)))
    is_told = any(work.is_told for side in (before, after) for work in side.work)
    cells = equal.equal_cells(before, after) if is_told else equal.named_cells(before, after)
    context = equal.context_words(before, after) if is_told else None
    if cells is not None and context is None:
        same = replace(some, cells=cells, work=equal.mix_words(before, after))
        return same if is_told else _checked(runs, same)
    words = (
        context if cells is not None and context is not None else equal.work_words(before, after)
    )
    other = replace(nothing, word=OTHER_WORK, work=words, reason=words)
    chosen = equal.decode_cells(before, after) if is_told else None
    if chosen is None:
        return other
    unit = chosen[1] if chosen[1] != STEP else nothing.unit
    return replace(other, kind=STEP, unit=unit, cells=chosen[0])


def _checked(runs: Runs, some: Comparison) -> Comparison:
    """Look at launches where the names of steps tell no amounts; other GPUs have other grids."""
    other = None if some.blocked(ALL) else _other_sizes(runs, some)
    if other is None:
        return some
    # Both sides are still told; only what it means is not.
    reason = f"{other}, and no token count is known"
    return replace(some, word=OTHER_WORK, work=other, reason=reason)


def _other_sizes(runs: Runs, some: Comparison) -> str | None:
    """Return what says that a step does other work, of kernels of both runs; None if nothing does.

    A kernel that is split into smaller launches of the same total grid does the same work. Other
    kernels may do the same work, too, so that kernels of one run alone say nothing.
    """
    names = runs.names
    first, second = (step_kernels(steps, names, some.cells) for steps in some.steps)
    talks = {key[0] for run in runs.compared for key in run.keys if is_communication(key[1])}
    both = (first.launches_n > 0) & (second.launches_n > 0)
    both &= ~np.isnan(first.threads + second.threads)
    both &= np.array([name not in talks for name in names], dtype=bool)
    n0, n1, threads0, threads1, spent_ns = (
        values[both]
        for values in (first.launches_n, second.launches_n, first.threads, second.threads,
                       first.spent_ns)
    )  # fmt: skip
    if not spent_ns.sum():
        return None
    more_calls = apart_pct(n0, n1) > SAME_WORK_PCT
    split = more_calls & (apart_pct(threads0, threads1) <= SAME_GRID_PCT)
    resized = (apart_pct(threads0 / n0, threads1 / n1) > SAME_WORK_PCT) & ~more_calls
    shares = (_share(n0, resized), "launches"), (_share(spent_ns, resized), "kernel time")
    sizes_pct, of = max(shares)
    if sizes_pct >= _MOST_PCT:
        return f"problem sizes changed: {format_percent(sizes_pct)} of {of} on other grids"
    calls_pct = _share(spent_ns, more_calls & ~split)
    if calls_pct >= _MOST_PCT:
        return f"launches a step changed: kernels with {format_percent(calls_pct)} of the time"
    return None


def _share(values: FloatArray, chosen: Mask) -> float:
    return float(100 * values[chosen].sum() / max(values.sum(), 1e-9))
