"""The ranks at a glance: where the time of each GPU went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys_llm.report.part import Part
from nsys_llm.report.records import records
from nsys_llm.taxonomy.wall_classes import WALL_CLASSES
from nsys_llm.trace.identity import Rank

from .steps import NO_STEPS, GpuSteps


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
