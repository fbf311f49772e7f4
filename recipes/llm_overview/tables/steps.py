"""What a step of the job is, how many each GPU has, and how long one takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nsys_llm.analyses.steps.of_job import job_steps
from nsys_llm.trace.identity import Rank, RankKey

from ..per_rank.steps import RankSteps

#: Of a GPU whose rank has no step, or another kind than the job.
NO_STEPS: Final[Mapping[str, Any]] = dict.fromkeys(("step_unit", "step_name", "steps_n", "step_ns"))

#: Columns of the table `ranks` on steps, by rank label and device.
GpuSteps = Mapping[tuple[str, int], Mapping[str, Any]]


def gpu_steps(steps: Mapping[RankKey, RankSteps], ranks: Sequence[Rank]) -> GpuSteps:
    """Return the steps of each GPU of the ranks that call a step what most of them do.

    Args:
        steps: Of each rank that has some.
        ranks: Those with GPU work, in order.
    """
    job = job_steps({rank.key: steps[rank.key].kind for rank in ranks if rank.key in steps})
    if job is None:
        return {}
    return {
        (rank.file, device_id): {
            "step_unit": job.unit,
            "step_name": job.name,
            "steps_n": steps_n,
            "step_ns": time_ns / steps_n,
        }
        for rank in ranks
        if rank.key in steps and rank.key not in job.others
        for device_id, (steps_n, time_ns) in steps[rank.key].devices.items()
        if steps_n
    }


def mean_step_ns(steps: Mapping[RankKey, RankSteps], ranks: Sequence[Rank]) -> float | None:
    """Return the mean of all full steps of the job, on any GPU; None without one."""
    gpus = gpu_steps(steps, ranks)
    rows = [
        counts
        for rank in ranks
        if rank.key in steps
        for device_id, counts in steps[rank.key].devices.items()
        if (rank.file, device_id) in gpus
    ]
    steps_n = sum(n for n, _ in rows)
    return sum(time_ns for _, time_ns in rows) / steps_n if steps_n else None
