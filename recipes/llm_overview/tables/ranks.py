"""The ranks at a glance: where the time of each GPU went, and its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import pandas as pd

from nsys_llm.job.job_steps import steps_of_groups
from nsys_llm.report.records import Record, grouped, records
from nsys_llm.taxonomy.wall_classes import WALL_CLASSES
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.outcomes import ProfileOutcome


def rank_rows(profiles: Iterable[ProfileOutcome], ranks: Sequence[Rank]) -> list[dict[str, Any]]:
    """Return a row a GPU: its span, the time of each class of the wall split, and its steps.

    A GPU whose rank has no step, or another kind than its group, has no columns of steps.
    """
    walls = {rank.key: rank.wall for profile in profiles for rank in profile.ranks}
    group_of = {rank.key: rank.group for rank in ranks}
    steps = steps_of_groups({key: walls[key].step for key in group_of}, group_of)
    rows, numbers = [], _GpuNumbers()
    gpus = [(rank, gpu) for rank in ranks for gpu in walls[rank.key].devices]
    for rank, gpu in gpus:
        place = rank.pid or 0, gpu.device_id
        name = rank.facts.gpu_of.get(place) if rank.facts else None
        row = {
            "gpu": None if name is None else numbers.of(name, talks=gpu.communication_ns > 0),
            "rank": rank.number,
            "file": rank.file,
            "group": rank.group,
            "device_id": gpu.device_id,
            "span_ns": gpu.span_ns,
            **{f"{name}_ns": getattr(gpu, f"{name}_ns") for name in WALL_CLASSES},
            "compute_pct": 100.0 * gpu.compute_ns / gpu.span_ns if gpu.span_ns else None,
        }
        work, job, step = gpu.work, steps.get(rank.key), walls[rank.key].step
        if job and step:
            row |= {"every_step_n": step.steps_n, "unrecorded_n": step.unrecorded_n}
        if job and work and work.has_steps and work.whole.any():
            whole_ns = work.whole_ns
            row |= {"step_unit": job.unit, "step_name": job.name, "steps_n": whole_ns.size}
            row["step_ns"] = int(whole_ns.sum()) / whole_ns.size
            longer = work.longer
            row["usual_step_ns"] = int(whole_ns[~longer].sum()) / int((~longer).sum())
            row["longer_n"] = int(longer.sum())
            row["longer_step_ns"] = float(whole_ns[longer].mean()) if longer.any() else None
            if beside := walls[rank.key].beside:
                row |= {"beside_name": beside.name, "beside_n": beside.steps_n}
                row["beside_ns"] = float(beside.length_ns)
        rows.append(row)
    return sorted(rows, key=lambda row: (row["rank"], row["file"], row["device_id"]))


def with_phases(gpus: Iterable[dict[str, Any]], steps: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows of GPUs with the phase of their usual and of their longer steps.

    That is known where the steps of a rank have two phases, and each of one is longer than all of
    the other.

    Args:
        steps: The table of nvtx_phase_attribution.
    """
    whole = steps.loc[steps["full"] & ~steps["warmup"], ["rank", "window_ns", "phase"]]
    of_rank = grouped(records(whole.sort_values("window_ns", kind="stable")), "rank")
    return [{**gpu, **_phases(gpu, of_rank.get((gpu["rank"],), []))} for gpu in gpus]


def _phases(gpu: Mapping[str, Any], whole: Sequence[Record]) -> dict[str, Any]:
    usual_n = len(whole) - (gpu.get("longer_n") or 0)
    sides = ({row["phase"] for row in side} for side in (whole[:usual_n], whole[usual_n:]))
    usual, longer = (some.pop() if len(some) == 1 else None for some in sides)
    if len(whole) != gpu.get("steps_n") or None in (usual, longer) or usual == longer:
        return {}
    return {"usual_phase": usual, "longer_phase": longer}


class _GpuNumbers:
    """Numbers of GPUs in order of occurrence; of ranks that communicate each has one of its own."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[int, bool]]] = {}
        self._next = count()

    def of(self, name: str, *, talks: bool) -> int:
        """Return the number of a GPU by its name, for a process that communicates or not."""
        known = self._known.setdefault(name, [])
        for at, (number, taken) in enumerate(known):
            if not (talks and taken):
                known[at] = number, talks or taken
                return number
        known.append((next(self._next), talks))
        return known[-1][0]


def mean_step_ns(gpus: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean full step of the job; None where steps hold less than half of the time.

    Args:
        gpus: Of one group: a mean over several is nobody's step.
    """
    stepped = [row for row in gpus if row.get("steps_n")]
    time_ns = sum(row["steps_n"] * row["step_ns"] for row in stepped)
    if not stepped or 2 * time_ns < sum(row["span_ns"] for row in gpus):
        return None
    return float(time_ns / sum(row["steps_n"] for row in stepped))
