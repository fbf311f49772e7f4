"""The ranks at a glance: where the time of each GPU went, and its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nsys_llm.analyses.steps.of_job import job_steps
from nsys_llm.analyses.steps.of_rank import RankStepTimes
from nsys_llm.report.part import Part
from nsys_llm.report.records import records
from nsys_llm.taxonomy.wall_classes import WALL_CLASSES
from nsys_llm.trace.identity import Rank, RankKey

#: Of a GPU whose rank has no step, or another kind than the job.
NO_STEPS: Final[Mapping[str, Any]] = dict.fromkeys(("step_unit", "step_name", "steps_n", "step_ns"))

#: Columns of the table `ranks` on steps, by rank label and device.
GpuSteps = Mapping[tuple[str, int], Mapping[str, Any]]


def rank_rows(
    parts: Mapping[str, Part], ranks: Sequence[Rank], steps: GpuSteps
) -> list[dict[str, Any]]:
    """Return a row a GPU: its span, the time of each class of the wall split, and its steps."""
    if not parts or not ranks:
        return []
    gpus: dict[tuple[int, str, int], dict[str, Any]] = {}
    for row in records(next(iter(parts.values())).tables["wall"]):
        key = row["rank"], row["file"], row["device_id"]
        gpu = gpus.setdefault(
            key,
            {
                **dict(zip(("rank", "file", "device_id"), key, strict=True)),
                "span_ns": row["span_ns"],
                **{f"{name}_ns": 0 for name in WALL_CLASSES},
            },
        )
        gpu[f"{row['wall_class']}_ns"] += row["time_ns"]
    for gpu in gpus.values():
        span_ns = gpu["span_ns"]
        gpu |= steps.get((gpu["file"], gpu["device_id"]), NO_STEPS)
        gpu["compute_pct"] = 100.0 * gpu["compute_ns"] / span_ns if span_ns else None
    return [gpus[key] for key in sorted(gpus)]


def gpu_steps(steps: Mapping[RankKey, RankStepTimes], ranks: Sequence[Rank]) -> GpuSteps:
    """Return the steps of each GPU of the ranks that call a step what most of them do."""
    job = job_steps({rank.key: steps[rank.key].kind for rank in ranks if rank.key in steps})
    if job is None:
        return {}
    return {
        (rank.file, device_id): {
            "step_unit": job.unit,
            "step_name": job.name,
            "steps_n": device.steps_n,
            "step_ns": device.time_ns / device.steps_n,
        }
        for rank in ranks
        if rank.key in steps and rank.key not in job.others
        for device_id, device in steps[rank.key].devices.items()
        if device.steps_n
    }


def mean_step_ns(gpus: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean full step of the job; None where steps hold less than half of the time."""
    stepped = [row for row in gpus if row["steps_n"]]
    time_ns = sum(row["steps_n"] * row["step_ns"] for row in stepped)
    if not stepped or 2 * time_ns < sum(row["span_ns"] for row in gpus):
        return None
    return float(time_ns / sum(row["steps_n"] for row in stepped))
