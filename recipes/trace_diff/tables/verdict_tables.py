"""Tables of the verdict: its row, where a step changed, slow steps, and what gates say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from nsys_llm.manifest.declared import Metric
from nsys_llm.manifest.gates import (
    FAIL,
    NOT_COMPARABLE,
    PASS,
    PROBABLY_FAIL,
    Gate,
    Judgement,
    judge,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.when import STEADY, courses, level_words
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, STEP_CLASSES, WAITING
from nsys_llm.trace.rank_sets import COMPARED

from .chosen_steps import Chosen
from .comparability import STEP
from .metrics import EQUAL, SLOW_STEPS, TESTED, MetricChange, Metrics, shown, value_columns
from .step_splits import Mask, Part, Split, mean_split, total
from .step_verdict import CHANGED, FASTER, MIXED, PROBABLY, SLOWER, UNCERTAIN, StepVerdict

#: Part of the change that steps without it may have.
_USUAL: Final = 0.25
_SLOW: Final = ("run", "rank", "device_id", "slow_n", "steps_n", "usual_ns", "excess_ns",
                "wall_class", "detail", "detail_ns", "range", "steps")  # fmt: skip
_RANGES: Final = ("range", "baseline_ns", "input_ns", "change_ns", "rank", "rank_change_ns")
#: Steps that are listed.
_MOST_LISTED: Final = 20
_HIDDEN: Final = "most steps are slower by more than the limit, the mean of all is not"
_AS_MEASURED: Final = "as measured; --baselines shows how far equal runs differ"


def verdict_row(verdict: StepVerdict) -> dict[str, Any]:
    """Return the row of the table verdict."""
    comparison, figure, looks = verdict.comparison, verdict.figure, verdict.looks
    difference, order = (looks.difference, looks.order) if looks else (None, None)
    steps_n = tuple(side.steps_n for side in comparison.steps)
    pairs: dict[str, Any] = {
        "ns": figure and figure.step_ns,
        "slow_n": looks and looks.slow_n,
        "token_ns": verdict.token_ns,
        "steps_n": steps_n if figure is None else figure.steps_n,
        "order_n": order and order.counts,
    }
    row: dict[str, Any] = {
        "word": verdict.word,
        "word_reason": verdict.word_reason,
        "basis": comparison.kind,
        "unit": comparison.kind and comparison.unit,
        "p_value": difference and difference.p_value,
        "slow_p_value": looks and looks.slow_p,
        "all_change_pct": verdict.all_pct,
        "covered_pct": comparison.cells.covered_pct if comparison.cells.shares else None,
        "noise_ns": verdict.noise_ns,
        "uncertain": verdict.is_uncertain,
        "neighbor_correlation": difference and difference.correlation,
        "longer_probability": order and order.longer,
        "enough_steps_n": verdict.enough_n,
        "work": comparison.work,
        "note": comparison.cells.note,
        "since": _since(verdict),
        "reason": comparison.reason,
    }
    if figure is not None:
        (before, after), (program0, program1) = figure.step_ns, figure.program_ns
        row["change_ns"] = after - before
        row["change_pct"] = 100 * (after - before) / before if before else None
        row["program_change_pct"] = 100 * (program1 - program0) / program0 if program0 else None
        if figure.interval is not None:
            row["low_pct"], row["high_pct"] = (100 * end for end in figure.interval)
    for name, both in pairs.items():
        row |= {f"{side}_{name}": both and both[at] for at, side in enumerate(COMPARED)}
    return row


def _since(verdict: StepVerdict) -> str | None:
    """Return since when, `slower from step 40 on`; None where steps are alike, or stand by GPU."""
    figure = verdict.figure
    # A change amid a run makes its steps alike, and the mean of all uncertain.
    if figure is None or verdict.looks is None or verdict.word not in CHANGED | {UNCERTAIN}:
        return None
    word = SLOWER if figure.change > 0 else FASTER
    means_ns = figure.chosen[0].cell_means_ns()
    sign = 1.0 if word == SLOWER else -1.0
    before, after = (sign * side.relative(means_ns) for side in figure.chosen)
    if any((side.steps.gpu >= 0).any() for side in figure.chosen):
        return None
    (earlier,), (course,) = courses(before[None], 1.0), courses(after[None], 1.0)
    if earlier.kind != STEADY or not course.steps.size:
        return None
    change = float(course.excess[course.steps].mean())
    if abs(course.usual - sign) > _USUAL * change:
        return None
    number = figure.chosen[1].steps.number[figure.chosen[1].kept][course.steps]
    words = level_words(course.kind, int(number[0]), int(number[-1]))
    return words and f"{word.lower()} {words}"


def wall_change_columns(verdict: StepVerdict) -> Columns:
    """Return the table wall_change: first the mean of GPUs, then each GPU that both runs have."""
    names = ("rank", "device_id", "wall_class", "detail", "baseline_ns", "input_ns", "change_ns")
    rows: list[tuple[Any, ...]] = []
    if verdict.figure is not None:
        before, after = verdict.figure.splits
        rows += _rows((None, None), mean_split(before), mean_split(after))
        gpus = verdict.comparison.steps[1].gpus
        for key in sorted(before.keys() & after.keys()):
            rows += _rows((key[0], gpus[key].steps.device_id), before[key], after[key])
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _rows(key: tuple[int | None, int | None], *sides: Split) -> Iterator[tuple[Any, ...]]:
    """Yield each class, and the details that it is divided into, which add up to it."""
    for name in STEP_CLASSES:
        yield (*key, name, None, *_change(total(side, name) for side in sides))
        every = {detail for side in sides for wall_class, detail in side if wall_class == name}
        if every == {None} or not every:
            continue
        changes = {
            detail: _change(side.get((name, detail), 0.0) for side in sides) for detail in every
        }
        details = (detail for detail, change in changes.items() if any(change[:2]))
        for detail in sorted(details, key=lambda item: (-abs(changes[item][2]), item or "")):
            yield (*key, name, detail or "not known", *changes[detail])


def _change(sides: Iterable[float]) -> tuple[float, float, float]:
    before, after = sides
    return before, after, after - before


def slow_step_columns(verdict: StepVerdict) -> Columns:
    """Return the table slow_steps: of each run its GPUs, those that slow steps come from first."""
    rows: list[tuple[Any, ...]] = []
    for run, chosen in zip(COMPARED, _compared(verdict), strict=False):
        of_run = ((run, *row) for row in _slow_rows(chosen))
        rows += sorted(of_run, key=lambda row: (-row[9], row[1], row[2]))
    return {name: [row[i] for row in rows] for i, name in enumerate(_SLOW)}


def _compared(verdict: StepVerdict) -> tuple[Chosen, ...]:
    """Return the steps of both runs that make the figure; none where it is not of steps."""
    if verdict.figure is None or verdict.comparison.kind != STEP:
        return ()
    return verdict.figure.chosen


def _slow_rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    slow: Mask = np.asarray(chosen.slow.any(axis=1))
    for (rank, _), gpu, row in chosen.gpus():
        compared = (row >= 0) & (chosen.cell[row] >= 0)
        is_slow, usual = compared & slow[row], compared & ~slow[row]
        if not is_slow.any() or not usual.any():
            continue
        parts: dict[Part, IntArray] = {**gpu.parts, (COMPUTE, None): gpu.compute_ns}
        # What a GPU waits for others is theirs.
        parts.pop((COMMUNICATION, WAITING), None)
        excess = {part: _excess(ns, is_slow, usual) for part, ns in parts.items()}
        part = max(excess, key=lambda part: excess[part])
        steps, names = gpu.steps, gpu.walls.ranges
        # The range of the host in which slow steps have most of their longest pauses.
        sums = np.bincount(steps.pause_range[is_slow], steps.pause_ns[is_slow], len(names))
        name = names[int(sums.argmax())]
        listed = ", ".join(map(str, steps.number[is_slow].tolist()[:_MOST_LISTED]))
        yield (
            rank, steps.device_id, int(is_slow.sum()), int(compared.sum()),
            float(steps.wall_ns[usual].mean()), _excess(steps.wall_ns, is_slow, usual),
            *part, excess[part], name if name and name != chosen.steps.name else None, listed,
        )  # fmt: skip


def _excess(ns: IntArray, is_slow: Mask, usual: Mask) -> float:
    return float(ns[is_slow].mean() - ns[usual].mean())


def idle_range_columns(verdict: StepVerdict) -> Columns:
    """Return the table idle_ranges: the longest idle stretch of a step by the host's range."""
    compared, rows = _compared(verdict), []
    sides = [_by_range(chosen) for chosen in compared]
    gpus_n = [max(len(chosen.steps.gpus), 1) for chosen in compared]
    for name in sorted({name for side in sides for name in side}):
        before, after = (side.get(name, {}) for side in sides)
        changes = {rank: after.get(rank, 0.0) - before.get(rank, 0.0) for rank in {*before, *after}}
        most = max(sorted(changes), key=lambda rank: abs(changes[rank]))
        means = sum(before.values()) / gpus_n[0], sum(after.values()) / gpus_n[1]
        rows.append((name or None, *means, means[1] - means[0], most, changes[most]))
    rows.sort(key=lambda row: (-abs(row[3]), row[0] or ""))
    return {name: [row[i] for row in rows] for i, name in enumerate(_RANGES)}


def _by_range(chosen: Chosen) -> dict[str, dict[int, float]]:
    """Return the mean of the longest pauses of a step, by range and rank."""
    sums: dict[str, dict[int, float]] = {}
    for (rank, _), gpu, row in chosen.gpus():
        kept = (row >= 0) & chosen.kept[row]
        codes, ns = gpu.steps.pause_range[kept], gpu.steps.pause_ns[kept]
        for code in np.unique(codes).tolist():
            name = gpu.walls.ranges[code]
            by_rank = sums.setdefault("" if name == chosen.steps.name else name, {})
            mean_ns = float(ns[codes == code].sum()) / max(int(kept.sum()), 1)
            by_rank[rank] = by_rank.get(rank, 0.0) + mean_ns
    return sums


def gate_columns(
    metrics: Metrics, gates: Sequence[Gate], declared: Sequence[Metric], verdict: StepVerdict
) -> Columns:
    """Return the table gates, in the order given."""
    unit_of = {metric.name: metric.unit for metric in declared}
    changes = [metrics.of(gate.metric, gate.argument) for gate in gates]
    judged = [_judged(gate, item, verdict) for gate, item in zip(gates, changes, strict=True)]
    return {
        "gate": [gate.text for gate in gates],
        "result": [item.result for item in judged],
        "metric": [
            gate.metric if gate.argument is None else f"{gate.metric}({gate.argument})"
            for gate in gates
        ],
        **value_columns(changes, [unit_of[gate.metric] for gate in gates]),
        "allowed": [shown(item.allowed) for item in judged],
        "reason": [item.reason for item in judged],
    }


def _judged(gate: Gate, change: MetricChange, verdict: StepVerdict) -> Judgement:
    """Return what a gate says: by runs of the baseline if they tell, else by the steps."""
    if change.reason is not None:
        return Judgement(NOT_COMPARABLE, None, change.reason)
    judged = judge(gate, change.before, change.after, change.noise)
    if judged.result == PASS and _is_hidden(gate, change.noise, verdict):
        return Judgement(FAIL, judged.allowed, _HIDDEN)
    if judged.result != FAIL or change.is_beyond:
        return judged
    if gate.metric in TESTED:
        result, reason = _by_steps(gate.metric, verdict)
    elif change.is_beyond is not None:
        result, reason = PROBABLY_FAIL, "runs of the baseline differ nearly as much"
    else:
        unsure = verdict.word.startswith((UNCERTAIN, PROBABLY)) and change.noise is None
        result, reason = FAIL, _AS_MEASURED if unsure else None
    return Judgement(result, judged.allowed, reason)


def _is_hidden(gate: Gate, noise: Fraction | None, verdict: StepVerdict) -> bool:
    """Tell whether typical steps surely pass the limit, which slow ones of the baseline hide."""
    figure, looks = verdict.figure, verdict.looks
    if gate.metric not in {*TESTED} - {EQUAL, SLOW_STEPS} or not figure or not looks:
        return False
    values = (Fraction(ns) for ns in figure.step_ns)
    before, after = (10**9 / value if gate.falls else value for value in values)
    return looks.moved > 0 and judge(gate, before, after, noise).result == FAIL


def _by_steps(metric: str, verdict: StepVerdict) -> tuple[str, str | None]:
    """Return whether steps are worse, or more of them slow, and why that is not sure."""
    looks = verdict.looks
    if looks is None or looks.slow_p is None:
        return PROBABLY_FAIL, "fewer than 5 steps show only a size"
    is_longer = verdict.word == SLOWER or looks.moved > 0
    if looks.is_burst if metric == SLOW_STEPS else is_longer:
        return FAIL, None
    if metric != SLOW_STEPS and verdict.word == PROBABLY + SLOWER:
        return PROBABLY_FAIL, None
    is_less = verdict.figure is not None and verdict.figure.change < 0
    if metric != EQUAL and (is_less or verdict.word_reason == MIXED or looks.more_slow > 0):
        return PROBABLY_FAIL, f"above the limit by some slow steps: the verdict is {verdict.word}"
    return PASS, f"above the limit, which may be chance: the verdict is {verdict.word}"
