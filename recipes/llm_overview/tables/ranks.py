"""The ranks at a glance: where the time of each GPU went, and its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nsys_llm.analyses.steps.of_job import common_step
from nsys_llm.report.part import Part
from nsys_llm.report.records import records
from nsys_llm.taxonomy.wall_classes import WALL_CLASSES
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.wall import RankWall

#: Of a GPU whose rank has no step, or another kind than the job.
NO_STEPS: Final[Mapping[str, Any]] = dict.fromkeys(("step_unit", "step_name", "steps_n", "step_ns"))


def rank_rows(parts: Mapping[str, Part], ranks: Sequence[Rank]) -> list[dict[str, Any]]:
    """Return a row a GPU: its span, the time of each class of the wall split, and its steps."""
    if not parts or not ranks:
        return []
    part = next(iter(parts.values()))
    mapped = [rank for profile in part.run.profiles for rank in profile.ranks]
    steps = gpu_steps({rank.key: rank.wall for rank in mapped}, ranks)
    gpus: dict[tuple[int, str, int], dict[str, Any]] = {}
    for row in records(part.tables["wall"]):
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


def gpu_steps(
    walls: Mapping[RankKey, RankWall], ranks: Sequence[Rank]
) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return columns on steps, by rank label and device, of ranks that have the step of most."""
    job = common_step({rank.key: walls[rank.key].step for rank in ranks})
    if job is None:
        return {}
    return {
        (rank.file, device.device_id): {
            "step_unit": job.unit,
            "step_name": job.name,
            "steps_n": work.whole_ns.size,
            "step_ns": int(work.whole_ns.sum()) / work.whole_ns.size,
        }
        for rank in ranks
        if rank.key not in job.others
        for device in walls[rank.key].devices
        if (work := device.work) is not None and work.has_steps and work.whole.any()
    }


def mean_step_ns(gpus: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean full step of the job; None where steps hold less than half of the time."""
    stepped = [row for row in gpus if row["steps_n"]]
    time_ns = sum(row["steps_n"] * row["step_ns"] for row in stepped)
    if not stepped or 2 * time_ns < sum(row["span_ns"] for row in gpus):
        return None
    return float(time_ns / sum(row["steps_n"] for row in stepped))
