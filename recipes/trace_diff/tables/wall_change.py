"""Tables of the wall-clock time of a step: the verdict, the way from one to the other, the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from nsys_llm.report.columns import Columns, sorted_columns
from nsys_llm.taxonomy.wall_classes import STEP_CLASSES

from .kernels import test_columns
from .runs import KernelSide, Run, Runs, kernel_side
from .step_splits import Gpu, Split, mean_split, total
from .step_verdict import StepVerdict
from .verdicts import compared

#: Kinds of what the host does.
CALL: Final = "call"
RANGE: Final = "range"
#: The host's clock counts nanoseconds.
_TICK_NS: Final = 1
#: Kinds of rows of the table waterfall.
_TOTAL: Final = "total"
_CHANGE: Final = "change"


def verdict_columns(verdict: StepVerdict) -> Columns:
    """Return the table verdict, of one row."""
    comparison, bursts = verdict.comparison, verdict.bursts
    before, after = verdict.before_ns, verdict.after_ns
    change = None if before is None or after is None else after - before
    program_pct = None
    if verdict.program_ns is not None:
        program_pct = _percent(verdict.program_ns[1] - verdict.program_ns[0], verdict.program_ns[0])
    interval = verdict.interval or (None, None)
    medians = _medians(verdict)
    tokens = verdict.token_ns or (None, None)
    row = {
        "word": verdict.word,
        "word_reason": verdict.word_reason,
        "basis": comparison.kind,
        "unit": None if comparison.kind is None else comparison.unit,
        "baseline_ns": before,
        "input_ns": after,
        "change_ns": change,
        "change_pct": _percent(change, before),
        "program_change_pct": program_pct,
        "low_pct": None if interval[0] is None else 100 * interval[0],
        "high_pct": None if interval[1] is None else 100 * interval[1],
        "baseline_p50_ns": medians[0],
        "input_p50_ns": medians[1],
        "p_value": verdict.p_value,
        "baseline_slow_n": None if bursts is None else bursts.slow_n[0],
        "input_slow_n": None if bursts is None else bursts.slow_n[1],
        "slow_p_value": None if bursts is None else bursts.p_value,
        "all_change_pct": verdict.all_pct,
        "covered_pct": comparison.cells.covered_pct if comparison.cells.shares else None,
        "baseline_token_ns": tokens[0],
        "input_token_ns": tokens[1],
        "noise_ns": verdict.noise_ns,
        "uncertain": verdict.is_uncertain,
        "baseline_steps_n": verdict.steps_n[0],
        "input_steps_n": verdict.steps_n[1],
        "enough_steps_n": verdict.enough_n,
        "work": comparison.work,
        "note": comparison.cells.note,
        "reason": comparison.reason,
    }
    return {name: [value] for name, value in row.items()}


def _medians(verdict: StepVerdict) -> tuple[float | None, float | None]:
    if verdict.chosen is None or verdict.interval is None:
        return None, None
    first, second = (float(np.median(side.program_ns[side.kept])) for side in verdict.chosen)
    return first, second


def wall_change_columns(verdict: StepVerdict) -> Columns:
    """Return the table wall_change: first the mean of GPUs, then each GPU that both runs have."""
    names = ("rank", "device_id", "wall_class", "detail", "baseline_ns", "input_ns", "change_ns")
    rows: list[tuple[Any, ...]] = []
    before, after = verdict.splits
    if before and after:
        rows += _rows((None, None), mean_split(before), mean_split(after))
        devices = {
            key: gpu.steps.device_id for key, gpu in verdict.comparison.steps[1].gpus.items()
        }
        for key in sorted(before.keys() & after.keys()):
            rows += _rows((key[0], devices[key]), before[key], after[key])
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def waterfall_columns(verdict: StepVerdict, changes: Columns) -> Columns:
    """Return the table waterfall: the mean of GPUs, by class and by detail.

    Args:
        verdict: Says what a step is.
        changes: The table wall_change.
    """
    unit = verdict.comparison.unit
    waterfall: list[tuple[str, str, str, float]] = []
    if changes["rank"]:
        rows = list(zip(*(changes[name] for name in ("rank", "wall_class", "detail")), strict=True))
        mean = [place for place, row in enumerate(rows) if row[0] is None]
        detailed = {rows[place][1] for place in mean if rows[place][2] is not None}
        classes = [place for place in mean if rows[place][2] is None]
        leaves = [
            place for place in mean if rows[place][2] is not None or rows[place][1] not in detailed
        ]
        views = (
            (f"a {unit}, mean GPU", classes),
            (f"a {unit}, mean GPU, in detail", leaves),
        )
        for view, places in views:
            waterfall.append((view, "baseline", _TOTAL, float(verdict.before_ns or 0)))
            for place in places:
                ns = changes["change_ns"][place]
                part = ": ".join(row for row in rows[place][1:] if row is not None)
                if ns:
                    waterfall.append((view, part, _CHANGE, ns))
            waterfall.append((view, "input", _TOTAL, float(verdict.after_ns or 0)))
    names = ("view", "part", "kind", "value_ns")
    return {name: [row[i] for row in waterfall] for i, name in enumerate(names)}


def host_columns(runs: Runs, options: Mapping[str, Any]) -> Columns:
    """Return the table host: calls and ranges that wait for no GPU, before and after.

    Args:
        runs: All runs.
        options: alpha and min_effect.
    """
    both = runs.compared
    parts: list[Columns] = []
    for kind in (CALL, RANGE):
        names = sorted({name for run in both for name in _seen(run, kind)})
        before, after = (_host_side(run, kind, names) for run in both)
        tests = test_columns(before, after, compared(before, after, None, options, _TICK_NS))
        first, second = tests["baseline_p50_ns"], tests["input_p50_ns"]
        known = (before.launches_n > 0) & (after.launches_n > 0) & (before.twice_p50 > 0)
        ratio = np.where(known, second / np.where(known, first, 1.0), np.nan)
        parts.append(
            {
                "kind": np.full(len(names), kind, dtype=object),
                "name": np.array(names, dtype=object),
                "baseline_n": before.launches_n,
                "input_n": after.launches_n,
                "baseline_total_ns": before.total_ns,
                "input_total_ns": after.total_ns,
                "baseline_p50_ns": first,
                "input_p50_ns": second,
                "p50_ratio": ratio,
                "p_value": tests["p_value"],
                "q_value": tests["q_value"],
                "verdict": tests["verdict"],
            }
        )
    joined = {name: np.concatenate([item[name] for item in parts]) for name in parts[0]}
    return sorted_columns(joined, "kind", "-baseline_total_ns", "name")


def _rows(key: Gpu | tuple[None, None], before: Split, after: Split) -> Iterator[tuple[Any, ...]]:
    """Yield each class, and the details that it is divided into, which add up to it."""
    for name in STEP_CLASSES:
        yield (*key, name, None, *_values(total(before, name), total(after, name)))
        details = {
            detail for side in (before, after) for wall_class, detail in side if wall_class == name
        }
        if details - {None}:
            sides = {
                detail: (
                    before.get((name, detail), 0.0),
                    after.get((name, detail), 0.0),
                )
                for detail in details
            }
            for detail in sorted(
                (side for side in sides if any(sides[side])),
                key=lambda detail: (-abs(sides[detail][1] - sides[detail][0]), detail or ""),
            ):
                yield (*key, name, detail or "not known", *_values(*sides[detail]))


def _values(before: float, after: float) -> tuple[float, float, float]:
    return before, after, after - before


def _histogram(run: Run, kind: str) -> Any:
    return run.part.host.calls if kind == CALL else run.part.host.ranges


def _seen(run: Run, kind: str) -> Iterator[str]:
    histogram = _histogram(run, kind)
    yield from (histogram.names[code] for code in np.unique(histogram.counts.group).tolist())


def _host_side(run: Run, kind: str, names: list[str]) -> KernelSide:
    histogram = _histogram(run, kind)
    place = {name: index for index, name in enumerate(names)}
    code = np.array([place.get(name, -1) for name in histogram.names], dtype=np.int64)
    counts = histogram.counts.regrouped(code) if code.size else histogram.counts
    return kernel_side(counts, counts.moments(len(names)).total)


def _percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole
