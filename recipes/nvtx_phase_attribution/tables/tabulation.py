"""Makes the tables of nvtx_phase_attribution of all ranks, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from nsys_llm.facts.phases.attribution_coverage import PARTS
from nsys_llm.facts.phases.rank import RangeCounts
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.reduced.job import Job
from nsys_llm.report.columns import Columns, percent, record_columns
from nsys_llm.report.outputs import Cells

from .contents import content_columns
from .phases import Parts, PhaseFrames, phase_columns, sums_frame
from .ranges import range_columns
from .steps import STEADY, rank_step_rows, step_columns

#: What `marks` has of the parts of a model.
_OF_PARTS: Final = ("graph_kernels_n", "annotated_n", "annotation_key", "contradicted_n")


def tabulate(job: Job) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    facts, options = job.facts.phases, job.options
    parts = _own_maps([(rank, facts.ranks[rank.key]) for rank in job.ranks])
    frames = PhaseFrames(parts, options)
    steps = step_columns(parts, frames, options)
    phases = phase_columns(frames)
    phases["phases"]["step_ns"] = _mean_step(steps, frames)
    return {
        **phases,
        **range_columns(parts, int(frames.ranks["gpu_ns"].sum()), options),
        **steps,
        "rank_steps": rank_step_rows(parts, frames),
        **content_columns(job, frames, parts),
        "attribution": _attribution(parts),
        "marks": {
            **record_columns(
                [(rank, part.marks) for rank, part in parts], *RangeCounts.__dataclass_fields__
            ),
            **record_columns([(rank, part.parts) for rank, part in parts], *_OF_PARTS),
        },
    }


def _own_maps(parts: Parts) -> Parts:
    """Return ranks, without the map that they share where graphs are not those of the first one."""
    graphs: dict[str, str] = {}
    own = []
    for rank, part in parts:
        found = part.parts
        rows = found.shared_map.rows().items()
        odd_n = sum(n for (graph, runs), (n,) in rows if graphs.setdefault(graph, runs) != runs)
        if odd_n:
            keys = [
                (*key[:3], "", "", "") if key[5] == "annotation" else key for key in found.sums.keys
            ]
            sums = ByKey.of(keys, found.sums.sums)
            part = replace(part, parts=replace(found, sums=sums, contradicted_n=odd_n))
        own.append((rank, part))
    return own


def _mean_step(columns: Mapping[str, Columns], frames: PhaseFrames) -> list[float | None]:
    """Return the GPU time of each phase in a mean step of a rank, without warm-up; null if none."""
    totals, steps = columns["phase_steps"], columns["step_stats"]
    total_ns = dict(zip(totals["phase"], totals["total_ns"], strict=True))
    rows = zip(steps["which"], steps["measure"], steps["steps_n"], strict=True)
    steps_n = next((n for which, measure, n in rows if (which, measure) == (STEADY, "gpu")), 0)
    return [total_ns.get(name, 0) / steps_n if steps_n else None for name in frames.names]


def _attribution(parts: Parts) -> Columns:
    rows = sums_frame(parts, lambda part: part.attribution, ["part"], ["ops_n", "gpu_ns"])
    rows = rows[(rows["ops_n"] > 0) | (rows["gpu_ns"] > 0)]
    order = list(PARTS)
    rows = rows.assign(place=[order.index(name) for name in rows["part"]])
    rows = rows.sort_values(["at", "place"], kind="stable", ignore_index=True)
    gpu_ns = rows["gpu_ns"].to_numpy(dtype=np.int64)
    whole = rows.groupby("at")["gpu_ns"].transform("sum").to_numpy(dtype=np.int64)
    reported = [PARTS[name] for name in rows["part"]]
    return {
        **{name: rows[name] for name in ("rank", "file", "part", "ops_n", "gpu_ns")},
        "attributed": [item.attributed for item in reported],
        "gpu_pct": percent(gpu_ns, whole),
        "meaning": [item.meaning for item in reported],
        "capture": [item.capture for item in reported],
    }
