"""Makes the tables of step_budget of all ranks, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.critical_path.job.meetings import Meetings, TimedSteps, job_steps, meet
from nsys_llm.critical_path.job.sums import add_up
from nsys_llm.critical_path.job.walk import follow_job, step_walks
from nsys_llm.critical_path.path.classes import CLASS_NAMES
from nsys_llm.critical_path.rank.rank import RankRows
from nsys_llm.job.ranks.verdicts import RankVerdict
from nsys_llm.reduced.job import Job
from nsys_llm.report.columns import Columns
from nsys_llm.report.outputs import Cells

from .ceilings import ceiling_rows
from .device_steps import DividedSteps, device_columns, device_steps
from .host_states import host_state_rows
from .job_tables import JobPaths, job_class_rows, job_columns, path_columns, statistics
from .what_if import replay_rows, unanswered
from .when import when_tables

_TABLES: Final = (
    *("job_steps", "device_steps", "step_classes", "ceilings", "path", "rank_edges"),
    *("what_if", "replay", "host_states", "when", "when_steps"),
)
#: Why nothing over ranks is told.
CLOCKS_APART: Final = "clocks of the machines are not aligned: no collective ties them together"


def tabulate(job: Job) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    rows = [(rank, job.facts.paths[rank.key]) for rank in job.ranks]
    meetings = meet(rows, job.collectives)
    shared, reason = job_steps(rows, meetings)
    steps = device_steps(rows, meetings, shared)
    of_job, lost = _of_job(rows, meetings, shared, job.verdicts, job.options)
    why_not = reason or lost
    return {
        **dict.fromkeys(_TABLES, ()),
        "what_if": unanswered(job.options, why_not) if why_not else (),
        "device_steps": device_columns(steps, shared),
        "rank_edges": _edge_columns(rows, meetings, reason, lost),
        **of_job,
        "step_classes": [*of_job.get("step_classes", ()), *_device_class_rows(steps)],
    }


def _of_job(
    rows: RankRows,
    meetings: Meetings,
    job: TimedSteps | None,
    verdicts: Sequence[RankVerdict],
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], str | None]:
    """Return the tables about the job, and why no change is replayed.

    There are none where ranks have no steps in common.
    """
    if job is None:
        return {}, None
    walks = step_walks(job)
    zero_ns = int(meetings.common_ns(rows[0][0], np.zeros(1, dtype=np.int64))[0])
    trail = follow_job(rows, meetings, walks)
    charged = add_up(trail, [budget.forest for _, budget in rows], len(walks))
    paths = JobPaths(rows, job, walks, charged, zero_ns)
    tables: dict[str, Any] = {
        "job_steps": job_columns(paths),
        "path": path_columns(paths),
        "host_states": host_state_rows(paths),
        "step_classes": job_class_rows(paths),
    }
    if not meetings.collectives.is_aligned:
        return tables, CLOCKS_APART
    tables |= when_tables(paths, verdicts)
    replayed, lost = replay_rows(paths, meetings, verdicts, options)
    return {**tables, "ceilings": ceiling_rows(paths), **replayed}, lost


def _edge_columns(
    rows: RankRows, meetings: Meetings, reason: str | None, lost: str | None
) -> Columns:
    return {
        "rank": [rank.number for rank, _ in rows],
        "file": [rank.file for rank, _ in rows],
        "step": [budget.step and budget.step.name for _, budget in rows],
        "step_unit": [budget.step and budget.step.unit for _, budget in rows],
        "step_source": [budget.step and budget.step.source for _, budget in rows],
        "steps_n": [len(budget.mark) for _, budget in rows],
        "wait_rows": [budget.has_wait_rows for _, budget in rows],
        "event_rows": [budget.has_event_rows for _, budget in rows],
        "clock_error_ns": [budget.clock_error_ns for _, budget in rows],
        "own_window_ns": [budget.beside and budget.beside.window_ns for _, budget in rows],
        "beside_limit_ns": [budget.beside and budget.beside.limit_ns for _, budget in rows],
        "beside_kernels_n": [budget.beside.kernels_n if budget.beside else 0 for _, budget in rows],
        "beside_ns": [budget.beside.time_ns if budget.beside else 0 for _, budget in rows],
        "collectives_n": [budget.forest.members.start_ns.size for _, budget in rows],
        "matched_n": [int((members >= 0).sum()) for members in meetings.of_member],
        "reason": [reason for _ in rows],
        "replay_reason": [lost for _ in rows],
    }


def _device_class_rows(steps: Sequence[DividedSteps]) -> list[dict[str, Any]]:
    rows = []
    for step in steps:
        counted = step.counted
        wall_ns = np.diff(step.device.edge_ns)[counted]
        for code, name in enumerate(CLASS_NAMES):
            values = step.time_ns[counted, code]
            if values.any():
                rows.append(
                    {
                        "scope": "device",
                        "rank": step.rank.number,
                        "file": step.rank.file,
                        "device_id": step.device.device_id,
                        "class": name,
                        **statistics(values, wall_ns, step.certain_ns[counted, code]),
                    }
                )
    return rows
