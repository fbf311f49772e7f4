"""Tables of slow steps: on which GPU they are, and what they have more of than the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, WAITING
from nsys_llm.trace.rank_sets import COMPARED

from .chosen_steps import Chosen
from .comparability import STEP
from .step_splits import GpuSteps, Mask, Part, RunSteps
from .step_verdict import StepVerdict

_SLOW: Final = ("run", "rank", "device_id", "slow_n", "steps_n", "usual_ns", "excess_ns",
                "wall_class", "detail", "detail_ns", "range", "steps")  # fmt: skip
_RANGES: Final = ("range", "baseline_ns", "input_ns", "change_ns", "rank", "rank_change_ns")
#: Steps that are listed.
_MOST_LISTED: Final = 20


def slow_step_columns(verdict: StepVerdict) -> Columns:
    """Return the table slow_steps: of each run its GPUs, those that slow steps come from first."""
    rows: list[tuple[Any, ...]] = []
    if verdict.chosen is not None and verdict.comparison.kind == STEP:
        for run, steps, chosen in zip(
            COMPARED, verdict.comparison.steps, verdict.chosen, strict=True
        ):
            rows += sorted(_rows(run, steps, chosen), key=lambda row: (-row[9], row[1], row[2]))
    return {name: [row[i] for row in rows] for i, name in enumerate(_SLOW)}


def _rows(run: str, steps: RunSteps, chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    slow, series = chosen.slow.any(axis=1) & (chosen.cell >= 0), chosen.series
    for place, ((rank, _), gpu) in enumerate(steps.gpus.items()):
        of_gpu = (series.gpu < 0) | (series.gpu == place)
        numbers = series.number[of_gpu & (chosen.cell >= 0)]
        is_slow = np.isin(gpu.steps.number, series.number[of_gpu & slow])
        usual = np.isin(gpu.steps.number, numbers) & ~is_slow
        if not is_slow.any() or not usual.any():
            continue
        excess = {part: _excess(ns, is_slow, usual) for part, ns in _parts(gpu).items()}
        # What a GPU waits for others is theirs.
        own = {part: ns for part, ns in excess.items() if part != (COMMUNICATION, WAITING)}
        part = max(own, key=lambda part: own[part])
        listed = ", ".join(map(str, gpu.steps.number[is_slow].tolist()[:_MOST_LISTED]))
        yield (
            run, rank, gpu.steps.device_id, int(is_slow.sum()), int((is_slow | usual).sum()),
            float(gpu.steps.wall_ns[usual].mean()), _excess(gpu.steps.wall_ns, is_slow, usual),
            part[0], part[1], own[part], _range(gpu, is_slow, steps.name), listed,
        )  # fmt: skip


def _parts(gpu: GpuSteps) -> dict[Part, Any]:
    compute = gpu.steps.wall_ns - gpu.steps.sums_ns.sum(axis=1)
    return {**gpu.parts, (COMPUTE, None): compute}


def _excess(ns: Any, is_slow: Mask, usual: Mask) -> float:
    return float(ns[is_slow].mean() - ns[usual].mean())


def _range(gpu: GpuSteps, is_slow: Mask, step: str | None) -> str | None:
    """Return the range of the host in which slow steps have most of their longest pauses."""
    names = gpu.walls.ranges
    sums = np.bincount(
        gpu.steps.pause_range[is_slow], gpu.steps.pause_ns[is_slow], minlength=len(names)
    )
    name = names[int(sums.argmax())]
    return name if name and name != step else None


def idle_range_columns(verdict: StepVerdict) -> Columns:
    """Return the table idle_ranges: the longest idle stretch of a step by the host's range."""
    sides: list[dict[str, dict[int, float]]] = []
    if verdict.chosen is not None and verdict.comparison.kind == STEP:
        for steps, chosen in zip(verdict.comparison.steps, verdict.chosen, strict=True):
            sides.append(_by_range(steps, chosen))
    rows = []
    for name in sorted({name for side in sides for name in side}):
        before, after = (side.get(name, {}) for side in sides)
        changes = {rank: after.get(rank, 0.0) - before.get(rank, 0.0) for rank in {*before, *after}}
        most = max(sorted(changes), key=lambda rank: abs(changes[rank]))
        gpus_n = [max(len(steps.gpus), 1) for steps in verdict.comparison.steps]
        means = sum(before.values()) / gpus_n[0], sum(after.values()) / gpus_n[1]
        rows.append((name or None, *means, means[1] - means[0], most, changes[most]))
    rows.sort(key=lambda row: (-abs(row[3]), row[0] or ""))
    return {name: [row[i] for row in rows] for i, name in enumerate(_RANGES)}


def _by_range(steps: RunSteps, chosen: Chosen) -> dict[str, dict[int, float]]:
    """Return the mean of the longest pauses of a step, by range and rank."""
    sums: dict[str, dict[int, float]] = {}
    series = chosen.series
    for place, ((rank, _), gpu) in enumerate(steps.gpus.items()):
        of_gpu = ((series.gpu < 0) | (series.gpu == place)) & chosen.kept
        kept = np.isin(gpu.steps.number, series.number[of_gpu])
        codes, ns = gpu.steps.pause_range[kept], gpu.steps.pause_ns[kept]
        for code in np.unique(codes).tolist():
            name = gpu.walls.ranges[code]
            name = "" if name == steps.name else name
            by_rank = sums.setdefault(name, {})
            mean_ns = float(ns[codes == code].sum()) / max(int(kept.sum()), 1)
            by_rank[rank] = by_rank.get(rank, 0.0) + mean_ns
    return sums
