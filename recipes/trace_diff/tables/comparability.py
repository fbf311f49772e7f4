"""Whether two runs are comparable, and by what: ranks, then work. All of it is decided here.

First the ranks that both have; then steps of equal work (see `equal_work`), periods of kernels
where a run was recorded without ranges, or the GPUs' spans where there are no steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.taxonomy.cuda_codes import MoveKind
from nsys_llm.taxonomy.step_names import GRAPH, PERIOD
from nsys_llm.view.text import counted, format_bytes, format_count, format_percent, listed, quoted

from .equal_work import (
    ALL_ALIKE,
    Cells,
    context_words,
    decode_cells,
    equal_cells,
    mix_words,
    named_cells,
    work_words,
)
from .runs import Run, Runs
from .step_kernels import common_pct, step_kernels
from .step_splits import SPAN, FloatArray, RunSteps

OTHER_WORK: Final = "OTHER WORK"
NOT_COMPARABLE: Final = "NOT COMPARABLE"
#: What is compared.
STEP: Final = "step"

#: Windows, and numbers of launches, that differ by more are not those of the same work; ours.
SAME_WORK_PCT: Final = 5.0
#: Share of each run's kernel time in kernels that both have, below which the runs are of different
#: programs; nsys-ai asks for a comparability of one half.
COMMON_PCT: Final = 50.0
#: Launch counts that change alike: their ratios differ by so little, for so much of the time; ours.
ALIKE_PCT: Final = 5.0
_ALIKE_SHARE_PCT: Final = 70.0
LEAST_CHANGE_PCT: Final = 2.0
_LEAST_LAUNCHES: Final = 8
#: Share of kernel time in common launches, from which spans hold the same work.
_SAME_SPAN_PCT: Final = 98.0
#: Bytes of copies in a direction that differ by less are the same; kernels that hold less of the
#: spans do not matter to them.
_SAME_BYTES_PCT: Final = 2.0
_FEW_KERNELS_PCT: Final = 5.0
#: Share of launches, or of kernel time, at other sizes from which steps do other work; ours.
_MOST_PCT: Final = 50.0
#: Launches are split or merged, not more or fewer, where total grids stay within this; ours.
_SAME_GRID_PCT: Final = 1.0
#: Steps of an engine of which the name is no format, from which compositions are not told.
_UNPARSED_PCT: Final = 5.0
_NAMELESS: Final = frozenset({GRAPH, PERIOD})
_NO_NAMES: Final = _NAMELESS | {SPAN}
_NAME_STEPS: Final = "give --step"


@dataclass(frozen=True)
class Comparison:
    """What two runs are compared by.

    Attributes:
        kind: `STEP` or `SPAN`; None where nothing is compared.
        unit: What people call it: step, layer, decode step, window.
        steps: Of both runs, of the ranks that both have.
        cells: Which steps are of equal work.
        word: `OTHER_WORK` or `NOT_COMPARABLE` where no verdict is given; None else.
        work: How the work or the mix of steps changed; None where it did not.
        reason: Why there is no verdict.
    """

    kind: str | None
    unit: str
    steps: tuple[RunSteps, RunSteps]
    cells: Cells = ALL_ALIKE
    word: str | None = None
    work: str | None = None
    reason: str | None = None


def compare(
    runs: Runs, candidates: Sequence[tuple[RunSteps, RunSteps]], blocked: Sequence[str]
) -> Comparison:
    """Return what two runs are compared by.

    Args:
        runs: All runs.
        candidates: Of baseline and input the steps with a name, replays or periods, and windows as
            a whole; each what is there.
        blocked: Checks by which nothing is comparable.
    """
    nothings = [
        Comparison(
            None, SPAN, (before.only(runs.common), after.only(runs.common)), word=NOT_COMPARABLE
        )
        for before, after in candidates
    ]
    named, nameless, whole = nothings
    if blocked:
        return replace(named, reason=", ".join(blocked))
    before, after = named.steps
    units = {before.unit, after.unit}
    for some in (named, nameless):
        if {steps.unit for steps in some.steps} <= _NAMELESS and units & _NO_NAMES:
            return _of_periods(runs, some)
    if units & _NO_NAMES:
        spans = _of_spans(runs, whole)
        if spans.word is None or units == {SPAN}:
            return spans
        side = "baseline" if before.unit in _NO_NAMES else "input"
        return replace(named, reason=f"no step found in the {side}; {_NAME_STEPS}")
    if (before.name, before.unit) == (after.name, after.unit):
        return _of_steps(runs, replace(named, unit=before.unit))
    names = f"a {before.unit} is {quoted(before.name)}, then a {after.unit} {quoted(after.name)}"
    return replace(named, word=OTHER_WORK, work=names, reason=f"{names}; {_NAME_STEPS}")


def missing_words(runs: Runs) -> str | None:
    """Say which ranks one of the runs lacks: `4 -> 3 ranks: rank 2 is missing in the input`."""
    before, after = ({rank.number for rank, _ in run.ranks} for run in runs.compared)
    parts = []
    for side, gone in (("input", before - after), ("baseline", after - before)):
        numbers = [str(number) for number in sorted(n for n in gone if n is not None)]
        if numbers:
            ranks, are = ("rank", "is") if len(numbers) == 1 else ("ranks", "are")
            parts.append(f"{ranks} {listed(numbers)} {are} missing in the {side}")
    if not parts:
        return None
    counts = f"{len(before)} -> {counted(len(after), 'rank')}"
    return f"{counts}: {', '.join(parts)}; {len(runs.common)} compared"


def _of_spans(runs: Runs, nothing: Comparison) -> Comparison:
    """Compare the spans of GPUs without steps, where they hold the same work."""
    spans = replace(nothing, kind=SPAN, word=None)
    if common_pct(*runs.compared) >= _SAME_SPAN_PCT:
        return spans
    before, after = (_bytes(run) for run in runs.compared)
    kernels_pct = max(100 * run.kernel_ns / max(run.window_ns, 1) for run in runs.compared)
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


def _bytes(run: Run) -> dict[str, int]:
    """Return what copies move, by direction."""
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
    before, after = (steps.series for steps in nothing.steps)
    some = replace(nothing, kind=STEP, word=None)
    if not len(before) or not len(after):
        return replace(nothing, reason="no full step that all GPUs of a run have")
    unparsed = max(steps.unparsed_n / max(steps.steps_n, 1) for steps in nothing.steps)
    if 100 * unparsed > _UNPARSED_PCT:
        note = f"{format_percent(100 * unparsed)} of the steps have a name of no known format"
        return _checked(runs, replace(some, cells=replace(ALL_ALIKE, note=note)))
    is_told = any(work.is_told for side in (before, after) for work in side.work)
    cells = equal_cells(before, after) if is_told else named_cells(before, after)
    context = context_words(before, after) if is_told else None
    if cells is not None and context is None:
        same = replace(some, cells=cells, work=mix_words(before, after))
        return same if is_told else _checked(runs, same)
    words = context if cells is not None and context is not None else work_words(before, after)
    other = replace(nothing, word=OTHER_WORK, work=words, reason=words)
    chosen = decode_cells(before, after) if is_told else None
    if chosen is None:
        return other
    unit = chosen[1] if chosen[1] != STEP else nothing.unit
    return replace(other, kind=STEP, unit=unit, cells=chosen[0])


def _checked(runs: Runs, some: Comparison) -> Comparison:
    """Look at launches where the names of steps tell no amounts."""
    other = _other_sizes(runs, some)
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
    talks = {key[0] for run in runs.compared for key in run.part.keys if is_communication(key[1])}
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
    more_calls = _apart_pct(n0, n1) > SAME_WORK_PCT
    split = more_calls & (_apart_pct(threads0, threads1) <= _SAME_GRID_PCT)
    resized = (_apart_pct(threads0 / n0, threads1 / n1) > SAME_WORK_PCT) & ~more_calls
    shares = (_share(n0, resized), "launches"), (_share(spent_ns, resized), "kernel time")
    sizes_pct, of = max(shares)
    if sizes_pct >= _MOST_PCT:
        return f"problem sizes changed: {format_percent(sizes_pct)} of {of} on other grids"
    calls_pct = _share(spent_ns, more_calls & ~split)
    if calls_pct >= _MOST_PCT:
        return f"launches a step changed: kernels with {format_percent(calls_pct)} of the time"
    return None


def common_names_pct(runs: Runs) -> list[float]:
    """Return the share of each run's kernel time in kernels that both have."""
    common = sorted(set.intersection(*({key[0] for key in run.part.keys} for run in runs.compared)))
    return [
        100.0 * int(run.kernels(common).total_ns.sum()) / run.kernel_ns if run.kernel_ns else 0.0
        for run in runs.compared
    ]


def work_ratio(before: Run, after: Run) -> float | None:
    """Return how much more of the same launches a run has; None where that is about as many."""
    names = sorted({key[0] for run in (before, after) for key in run.part.keys})
    first, second = before.kernels(names), after.kernels(names)
    both = (first.launches_n > 0) & (second.launches_n > 0)
    n0, n1 = first.launches_n[both], second.launches_n[both]
    t0, t1 = (item.total_ns[both].astype(np.float64) for item in (first, second))
    few = 100 * t0.sum() < COMMON_PCT * before.kernel_ns
    if few or 100 * t1.sum() < COMMON_PCT * after.kernel_ns or n0.sum() < _LEAST_LAUNCHES:
        return None
    ratio = float(n1.sum() / n0.sum())
    if 100 * abs(ratio - 1) < LEAST_CHANGE_PCT:
        return None
    alike = 100 * np.abs(n1 / n0 / ratio - 1) <= ALIKE_PCT
    return ratio if t0[alike].sum() >= _ALIKE_SHARE_PCT / 100 * t0.sum() else None


def other_work(before: Run, after: Run) -> bool:
    """Tell whether sums over two runs mean nothing against each other.

    They mean something where both did as many of the same steps; where none counts steps, where
    windows are about as long or launches about as many, and launches did not change all alike.
    """
    if len(before.ranks) != len(after.ranks):
        return True
    if before.steps_n is not None or after.steps_n is not None:
        if before.tokens_n is not None and after.tokens_n is not None:
            return not same_tokens(before, after)
        return (before.step, before.steps_n) != (after.step, after.steps_n)
    return other_window(before, after) or work_ratio(before, after) is not None


def same_tokens(before: Run, after: Run) -> bool:
    """Tell whether the steps of two runs did as many tokens, however many steps these were."""
    if before.tokens_n is None or after.tokens_n is None or before.step != after.step:
        return False
    return apart_pct(before.tokens_n, after.tokens_n) <= SAME_WORK_PCT


def other_window(before: Run, after: Run) -> bool:
    """Tell whether windows of another length hold another number of launches."""
    return (
        apart_pct(before.device_window_ns, after.device_window_ns) > SAME_WORK_PCT
        and apart_pct(before.launches_n, after.launches_n) > SAME_WORK_PCT
    )


def apart_pct(before: float, after: float) -> float:
    """Return how far two numbers lie apart, in percent of the larger."""
    return 100.0 * abs(after - before) / max(before, after, 1)


def _apart_pct(first: FloatArray, second: FloatArray) -> FloatArray:
    return 100 * np.abs(second - first) / np.maximum(np.maximum(first, second), 1e-9)


def _share(values: FloatArray, chosen: npt.NDArray[np.bool_]) -> float:
    return float(100 * values[chosen].sum() / max(values.sum(), 1e-9))
