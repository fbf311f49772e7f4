"""Tables of nvtx_phase_attribution out of the merged partial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nsys_llm.report.columns import Columns, percent, record_columns
from nsys_llm.report.outputs import Cells
from nsys_llm.trace.identity import Rank

from ..partials import PhasePartial
from ..per_rank.attribution_coverage import PARTS
from .contents import content_columns
from .phases import PhaseFrames, phase_columns
from .ranges import range_columns
from .rank_frames import Parts, sums_frame, total_of
from .steps import STEADY, step_columns


def tabulate(
    partial: PhasePartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    parts: Parts = [(rank, partial.ranks[rank.key]) for rank in ranks]
    frames = PhaseFrames(parts, options)
    columns: dict[str, Columns] = {
        **phase_columns(partial, frames, ranks),
        **range_columns(parts, total_of(frames.ranks, "gpu_ns"), options),
        **step_columns(parts, frames, options),
        **content_columns(partial, frames, parts, options),
        "attribution": _attribution(parts),
        "devices": _devices(parts),
        "marks": _marks(parts),
    }
    columns["phases"]["step_ns"] = _mean_step(columns)
    return {**columns}


def _mean_step(columns: Mapping[str, Columns]) -> list[float | None]:
    """Return the GPU time of each phase in a mean step of a rank, without warm-up; null if none."""
    totals, steps = columns["phase_steps"], columns["step_stats"]
    total_ns = dict(zip(totals["phase"], totals["total_ns"], strict=True))
    rows = zip(steps["which"], steps["measure"], steps["steps_n"], strict=True)
    steps_n = next((n for which, measure, n in rows if (which, measure) == (STEADY, "gpu")), 0)
    names = columns["phases"]["phase"]
    return [total_ns.get(name, 0) / steps_n if steps_n else None for name in names]


def _attribution(parts: Parts) -> Columns:
    rows = sums_frame(parts, lambda part: part.attribution, ["part"])
    names = ("ops_n", "gpu_ns", "kernel_ns")
    for name in names:
        if name not in rows:
            rows[name] = np.empty(0, dtype=np.int64)
    rows = rows[(rows["ops_n"] > 0) | (rows["gpu_ns"] > 0)]
    order = list(PARTS)
    rows = rows.assign(place=[order.index(name) for name in rows["part"]])
    rows = rows.sort_values(["at", "place"], kind="stable", ignore_index=True)
    gpu_ns = rows["gpu_ns"].to_numpy(dtype=np.int64)
    whole = rows.groupby("at")["gpu_ns"].transform("sum").to_numpy(dtype=np.int64)
    reported = [PARTS[name] for name in rows["part"]]
    return {
        **{name: rows[name] for name in ("rank", "file", "part", *names)},
        "attributed": [item.attributed for item in reported],
        "gpu_pct": percent(gpu_ns, whole),
        "meaning": [item.meaning for item in reported],
        "capture": [item.capture for item in reported],
    }


def _devices(parts: Parts) -> Columns:
    rows = [(rank, device) for rank, part in parts for device in part.idle.devices]
    known = [part.idle.known for _, part in parts for _ in part.idle.devices]
    names = ("device_id", "window_start_ns", "window_end_ns", "window_ns", "gpu_ns", "overhead_ns")
    return {
        **record_columns(rows, *names),
        "busy_ns": [device.window_ns - device.gap_ns for _, device in rows],
        "known": known,
        "idle_ns": [
            device.gap_ns - device.overhead_ns if complete else None
            for (_, device), complete in zip(rows, known, strict=True)
        ],
    }


def _marks(parts: Parts) -> Columns:
    names = ("push_pop_n", "start_end_n", "without_end_n", "empty_n")
    return {
        **record_columns([(rank, part.marks) for rank, part in parts], *names),
        "steps": [None if part.steps is None else part.steps.kind.name for _, part in parts],
        "steps_n": [0 if part.steps is None else len(part.steps.names) for _, part in parts],
    }
