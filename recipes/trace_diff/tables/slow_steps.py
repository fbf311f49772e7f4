"""Tables of slow steps: on which GPU they are, and what they have more of than the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, WAITING
from nsys_llm.trace.rank_sets import COMPARED

from .chosen_steps import Chosen
from .comparability import STEP
from .step_splits import GpuSteps, Mask, Part
from .step_verdict import StepVerdict

_SLOW: Final = ("run", "rank", "device_id", "slow_n", "steps_n", "usual_ns", "excess_ns",
                "wall_class", "detail", "detail_ns", "range", "steps")  # fmt: skip
_RANGES: Final = ("range", "baseline_ns", "input_ns", "change_ns", "rank", "rank_change_ns")
#: Steps that are listed.
_MOST_LISTED: Final = 20


def slow_step_columns(verdict: StepVerdict) -> Columns:
    """Return the table slow_steps: of each run its GPUs, those that slow steps come from first."""
    rows: list[tuple[Any, ...]] = []
    for run, chosen in zip(COMPARED, _compared(verdict), strict=False):
        of_run = ((run, *row) for row in _rows(chosen))
        rows += sorted(of_run, key=lambda row: (-row[9], row[1], row[2]))
    return {name: [row[i] for row in rows] for i, name in enumerate(_SLOW)}


def _compared(verdict: StepVerdict) -> tuple[Chosen, ...]:
    """Return the steps of both runs that make the figure; none where it is not of steps."""
    if verdict.figure is None or verdict.comparison.kind != STEP:
        return ()
    return verdict.figure.chosen


def _rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    slow = chosen.slow.any(axis=1)
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
