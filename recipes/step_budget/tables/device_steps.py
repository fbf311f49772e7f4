"""Steps of each device: what it did, and what the path inside its rank is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.critical_path.job.meetings import Meetings, TimedSteps
from nsys_llm.critical_path.path import classes
from nsys_llm.critical_path.rank.rank import DevicePaths, RankPaths, RankRows
from nsys_llm.facts.steps.steps import COUNTED, EMPTY, WARMUP
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, nullable, percent, rank_columns
from nsys_llm.trace.identity import Rank

_RUNGS: Final = (
    *("busy_compute_ns", "busy_communication_ns", "busy_copy_ns", "overhead_ns", "idle_ns"),
)


@dataclass(frozen=True)
class DividedSteps:
    """The steps of one device, communication divided into waiting and transfer.

    Attributes:
        mark: Why each step is in no statistic; "" for one that counts.
        time_ns: Shape (steps, classes).
        certain_ns: Likewise, the part to which no inferred edge led.
    """

    place: int
    rank: Rank
    device: DevicePaths
    mark: tuple[str, ...]
    time_ns: IntArray
    certain_ns: IntArray

    @property
    def counted(self) -> IntArray:
        """The steps that count, by position."""
        return np.flatnonzero([mark == COUNTED for mark in self.mark])


def device_steps(rows: RankRows, meetings: Meetings, job: TimedSteps | None) -> list[DividedSteps]:
    """Return the steps of every device of every rank, in order."""
    steps = []
    for place, (rank, budget) in enumerate(rows):
        for device in budget.devices:
            mark, times = (
                _marks(place, budget, device, job),
                _divided(place, budget, device, meetings),
            )
            steps.append(DividedSteps(place, rank, device, mark, *times))
    return steps


def device_columns(steps: list[DividedSteps], job: TimedSteps | None) -> Columns:
    """Return the table device_steps; `job` has the steps of the job, None where there are none."""
    sizes = [len(step.mark) for step in steps]
    edges = [step.device.edge_ns for step in steps]
    window_ns = joined([np.diff(edge) for edge in edges])
    rungs = _stacked([step.device.rungs_ns for step in steps], len(_RUNGS))
    time_ns = _stacked([step.time_ns for step in steps], len(classes.CLASS_NAMES))
    certain_ns = _stacked([step.certain_ns for step in steps], len(classes.CLASS_NAMES)).sum(axis=1)
    return {
        **rank_columns([(step.rank, n) for step, n in zip(steps, sizes, strict=True)]),
        "device_id": joined([np.full(len(step.mark), step.device.device_id) for step in steps]),
        "step": joined([np.arange(n) for n in sizes]),
        "job_step": _of_job(steps, sizes, job),
        "mark": [mark for step in steps for mark in step.mark],
        "start_ns": joined([edge[:-1] for edge in edges]),
        "end_ns": joined([edge[1:] for edge in edges]),
        "window_ns": window_ns,
        **{name: rungs[:, code] for code, name in enumerate(_RUNGS)},
        "no_work_ns": joined([step.device.no_work_ns for step in steps]),
        **{f"{name}_ns": time_ns[:, code] for code, name in enumerate(classes.CLASS_NAMES)},
        "certain_ns": certain_ns,
        "certain_pct": percent(certain_ns, window_ns),
    }


def _of_job(steps: list[DividedSteps], sizes: list[int], job: TimedSteps | None) -> Any:
    """Return the step of the job that each step of a device is; null where it is none."""
    numbers = []
    for device, n in zip(steps, sizes, strict=True):
        own = np.full(n, NULL_INT)
        if job is not None:
            there = np.flatnonzero(job.step[device.place] >= 0)
            own[job.step[device.place, there]] = there
        numbers.append(own)
    return nullable(joined(numbers))


def _marks(
    place: int, budget: RankPaths, device: DevicePaths, job: TimedSteps | None
) -> tuple[str, ...]:
    marks = np.array(budget.mark, dtype=object)
    if job is not None:
        own, warm = job.step[place], np.array(job.mark, dtype=object) == WARMUP
        rows = own[warm & (own >= 0)]
        marks[rows[marks[rows] == COUNTED]] = WARMUP
    marks[(marks == COUNTED) & (np.diff(device.edge_ns) == 0)] = EMPTY
    return tuple(marks.tolist())


def _divided(
    place: int, budget: RankPaths, device: DevicePaths, meetings: Meetings
) -> tuple[IntArray, IntArray]:
    """Return time by step and class, and the certain part, of matched communication in parts."""
    time_ns, certain_ns = device.charges.time_ns.copy(), device.charges.certain_ns.copy()
    passages, forest = device.passages, budget.forest
    of_member = np.append(meetings.of_member[place], -1)
    met = of_member[passages.member]
    rows = np.flatnonzero(met >= 0)
    if not rows.size:
        return time_ns, certain_ns
    member, met = passages.member[rows], met[rows]
    start, end, walk = passages.start_ns[rows], passages.end_ns[rows], passages.walk[rows]
    begun_ns = forest.members.start_ns[member]
    # As of the collective's own instant, so that a duration stays what the profile has.
    last_ns = begun_ns + meetings.last_ns[met] - meetings.starts_ns[place][member]
    waited = np.clip(last_ns - start, 0, end - start)
    sure = ~passages.doubtful[rows]
    for sums, some in ((time_ns, np.ones_like(sure)), (certain_ns, sure)):
        for code, ns in (
            (classes.COMMUNICATION, start - end),
            (classes.WAIT_FOR_RANK, waited),
            (classes.TRANSFER, end - start - waited),
        ):
            np.add.at(sums[:, code], walk[some], ns[some])
    return time_ns, certain_ns


def _stacked(parts: list[IntArray], columns_n: int) -> IntArray:
    return np.concatenate([np.empty((0, columns_n), dtype=np.int64), *parts])
