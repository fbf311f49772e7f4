"""Tables of the wall-clock time of a step: verdict, where it changed, slow steps, the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.grouping import positions
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.when import STEADY, courses, level_words
from nsys_llm.report.columns import Columns, sorted_columns
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, STEP_CLASSES, WAITING
from nsys_llm.trace.rank_sets import COMPARED

from .chosen_steps import Chosen
from .comparability import STEP
from .kernels import compared, ratio
from .runs import KernelSide, Runs, kernel_side
from .step_splits import GpuSteps, Mask, Part, Split, mean_split, total
from .step_verdict import CHANGED, FASTER, SLOWER, UNCERTAIN, Figure, StepVerdict

#: Kinds of what the host does.
CALL: Final = "call"
RANGE: Final = "range"
#: Part of the change that steps without it may have.
_USUAL: Final = 0.25
#: The host's clock counts nanoseconds.
_TICK_NS: Final = 1


def verdict_row(verdict: StepVerdict) -> dict[str, Any]:
    """Return the row of the table verdict."""
    comparison, figure, looks = verdict.comparison, verdict.figure, verdict.looks
    before, after = comparison.steps
    difference, order = (looks.difference, looks.order) if looks else (None, None)
    row: dict[str, Any] = {
        "word": verdict.word,
        "word_reason": verdict.word_reason,
        "basis": comparison.kind,
        "unit": None if comparison.kind is None else comparison.unit,
        **_pair("_ns", None if figure is None else figure.step_ns),
        "p_value": difference and difference.p_value,
        **_pair("_slow_n", None if looks is None else looks.slow_n),
        "slow_p_value": None if looks is None else looks.slow_p,
        "all_change_pct": verdict.all_pct,
        "covered_pct": comparison.cells.covered_pct if comparison.cells.shares else None,
        **_pair("_token_ns", verdict.token_ns),
        "noise_ns": verdict.noise_ns,
        "uncertain": verdict.is_uncertain,
        **_pair("_steps_n", (before.steps_n, after.steps_n) if figure is None else figure.steps_n),
        "neighbor_correlation": difference and difference.correlation,
        "longer_probability": order and order.longer,
        **_pair("_order_n", order.counts if order else None),
        "enough_steps_n": verdict.enough_n,
        "work": comparison.work,
        "note": comparison.cells.note,
        "since": _since(verdict),
        "reason": comparison.reason,
    }
    return row if figure is None else row | _figure(figure)


def _pair(name: str, values: tuple[float, float] | None) -> dict[str, float | None]:
    both = (None, None) if values is None else values
    return {f"{side}{name}": value for side, value in zip(COMPARED, both, strict=True)}


def _figure(figure: Figure) -> dict[str, Any]:
    (before, after), (program0, program1) = figure.step_ns, figure.program_ns
    row: dict[str, Any] = {
        "change_ns": after - before,
        "change_pct": 100 * (after - before) / before if before else None,
        "program_change_pct": 100 * (program1 - program0) / program0 if program0 else None,
    }
    if figure.interval is not None:
        row["low_pct"], row["high_pct"] = (100 * end for end in figure.interval)
    if figure.difference is not None:
        medians = (float(np.median(side.program_ns[side.kept])) for side in figure.chosen)
        row |= _pair("_p50_ns", (next(medians), next(medians)))
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


def host_columns(runs: Runs, options: Mapping[str, Any]) -> Columns:
    """Return the table host: calls and ranges that wait for no GPU, before and after."""
    parts: list[Columns] = []
    for kind in (CALL, RANGE):
        both = [
            run.job.facts.compared.calls if kind == CALL else run.job.facts.compared.ranges
            for run in runs.compared
        ]
        seen = [(some.keys, np.unique(some.counts.group).tolist()) for some in both]
        names = sorted({of[code] for of, codes in seen for code in codes})
        before, after = (_host_side(some, names) for some in both)
        tests = compared(before, after, None, options, _TICK_NS)
        columns = ("baseline_p50_ns", "input_p50_ns", "p_value", "q_value", "verdict")
        parts.append(
            {
                "kind": np.full(len(names), kind, dtype=object),
                "name": np.array(names, dtype=object),
                "baseline_n": before.launches_n,
                "input_n": after.launches_n,
                "baseline_total_ns": before.total_ns,
                "input_total_ns": after.total_ns,
                "p50_ratio": ratio(before.p50_ns, after.p50_ns),
                **{name: tests[name] for name in columns},
            }
        )
    joined = {name: np.concatenate([item[name] for item in parts]) for name in parts[0]}
    return sorted_columns(joined, "kind", "-baseline_total_ns", "name")


def _host_side(histogram: ByKey, names: list[str]) -> KernelSide:
    code = positions(histogram.keys, names)
    counts = histogram.counts.regrouped(code) if code.size else histogram.counts
    return kernel_side(counts, counts.moments(len(names)).total)


_SLOW: Final = ("run", "rank", "device_id", "slow_n", "steps_n", "usual_ns", "excess_ns",
                "wall_class", "detail", "detail_ns", "range", "steps")  # fmt: skip
_RANGES: Final = ("range", "baseline_ns", "input_ns", "change_ns", "rank", "rank_change_ns")
#: Steps that are listed.
_MOST_LISTED: Final = 20


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
        steps = gpu.steps
        listed = ", ".join(map(str, steps.number[is_slow].tolist()[:_MOST_LISTED]))
        yield (
            rank, steps.device_id, int(is_slow.sum()), int(compared.sum()),
            float(steps.wall_ns[usual].mean()), _excess(steps.wall_ns, is_slow, usual),
            *part, excess[part], _range(gpu, is_slow, chosen.steps.name), listed,
        )  # fmt: skip


def _excess(ns: IntArray, is_slow: Mask, usual: Mask) -> float:
    return float(ns[is_slow].mean() - ns[usual].mean())


def _range(gpu: GpuSteps, is_slow: Mask, step: str | None) -> str | None:
    """Return the range of the host in which slow steps have most of their longest pauses."""
    names, steps = gpu.walls.ranges, gpu.steps
    sums = np.bincount(steps.pause_range[is_slow], steps.pause_ns[is_slow], minlength=len(names))
    name = names[int(sums.argmax())]
    return name if name and name != step else None


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
