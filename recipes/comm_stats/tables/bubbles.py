"""Where each step of a stage went, and what its bubble is made of. Exact integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsys_llm.analyses.wall.communication_split import (
    communication_spans,
    meets_and_leaves,
    waiting_and_transfer,
)
from nsys_llm.numeric.intervals import (
    IntArray,
    covered_ns,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import BUBBLE, TRANSFER, WAITING

from ..per_rank.steps import StepSplit
from .job import Job
from .pipelines import Chain

_PARTS = (
    *("compute_ns", "transfer_ns", "wait_stage_ns", "wait_own_ns", "not_matched_ns"),
    *("copy_ns", "overhead_ns", "idle_ns"),
)

#: All stages leave a collective within this part of its length, at most: 1 / 10.
_DRAIN_SPREAD = 10


@dataclass(frozen=True)
class _Times:
    """One device of a pipeline: ns of each of its windows by part, shape (windows,) each."""

    parts: dict[str, IntArray]
    host_ns: IntArray | None


def bubble_columns(job: Job, chains: Sequence[Chain], names: Sequence[str]) -> Columns:
    """Return one row a step and device of a pipeline.

    Args:
        job: All devices.
        chains: The pipelines.
        names: Columns of the table.
    """
    rows = [row for chain in chains for row in _chain_rows(job, chain)]
    rows.sort(key=lambda row: (row["rank"], row["device_id"], row["step"] or 0))
    return {name: [row[name] for row in rows] for name in names}


def _chain_rows(job: Job, chain: Chain) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    splits = {owner: job.steps[owner].split for owner in chain.owners}
    drains = _drains(job, chain)
    times = {
        owner: _times(job, owner, split, _others(job, chain, owner), drains.get(owner))
        for owner, split in splits.items()
        if split is not None
    }
    if chain.steps is None or len(times) < len(splits):
        for owner, some in times.items():
            rows += _rows(job, chain, owner, _summed(some, job.steps[owner].whole), [None])
        return rows
    picked = {owner: _picked(some, job.row_of(owner, chain.steps)) for owner, some in times.items()}
    compute_ns = np.array(
        [
            np.sum([picked[owner].parts["compute_ns"] for owner in some], axis=0) // len(some)
            for some in chain.stages
        ]
    )
    most_ns = compute_ns.max(axis=0)
    schedule_ns = None
    if chain.messages_n:
        schedule_ns = (compute_ns.sum(axis=0) - most_ns) // chain.messages_n
    for stage, owners in enumerate(chain.stages):
        imbalance_ns = most_ns - compute_ns[stage]
        for owner in owners:
            more = _rows(job, chain, owner, picked[owner], chain.steps.tolist())
            for at, row in enumerate(more):
                row["imbalance_ns"] = int(imbalance_ns[at])
                if schedule_ns is not None:
                    row["schedule_ns"] = int(schedule_ns[at])
                    if row["bubble_ns"] is not None:
                        rest_ns = row["bubble_ns"] - row["schedule_ns"] - row["imbalance_ns"]
                        row["other_ns"] = rest_ns
            rows += more
    return rows


def _rows(
    job: Job, chain: Chain, owner: int, times: _Times, steps: Sequence[int | None]
) -> list[dict[str, Any]]:
    parts = {name: values.tolist() for name, values in times.parts.items()}
    host_ns = None if times.host_ns is None else times.host_ns.tolist()
    rows = []
    for at, step in enumerate(steps):
        row = {name: values[at] for name, values in parts.items()}
        window_ns, bubble_ns = sum(row.values()), None
        if host_ns is not None:
            bubble_ns = row["wait_stage_ns"] + row["idle_ns"] - host_ns[at]
        rows.append(
            {
                "rank": job.rank(owner),
                "file": job.collectives.devices[owner].rank.file,
                "device_id": job.collectives.devices[owner].device_id,
                "pipeline": chain.number,
                "step": step,
                "window_ns": window_ns,
                **row,
                "host_ns": None if host_ns is None else host_ns[at],
                "bubble_ns": bubble_ns,
                "bubble_pct": 100.0 * bubble_ns / window_ns if bubble_ns is not None else None,
                "schedule_ns": None,
                "imbalance_ns": None,
                "other_ns": None,
                "microbatches_n": chain.messages_n,
                "kind": chain.kind,
            }
        )
    return rows


def _drains(job: Job, chain: Chain) -> dict[int, IntArray]:
    """Return when devices are in collectives of the whole pipeline that close steps.

    By time such a collective counts as one of the stage's, if it shares their stream. Then all
    stages leave their last one at once.

    Returns:
        By device, shape (n, 4): when it comes, when the last one does, when it leaves, and whether
        that one is of its stage.
    """
    if chain.steps is None:
        return {}
    stage_of = {owner: at for at, owners in enumerate(chain.stages) for owner in owners}
    last = {
        owner: _last_of_steps(job, owner, chain.stages[at], chain.steps)
        for owner, at in stage_of.items()
    }
    times: dict[int, list[tuple[int, int, int, int]]] = {}
    for step in set.intersection(*(set(some) for some in last.values())):
        rows = {owner: some[step] for owner, some in last.items()}
        ends = [end_ns for end_ns, _, _ in rows.values()]
        length_ns = {owner: leave_ns - begin_ns for owner, (_, begin_ns, leave_ns) in rows.items()}
        if _DRAIN_SPREAD * (max(ends) - min(ends)) > max(length_ns.values()):
            continue
        # As all leave at once, who is in it for least came last; that needs no clock.
        latest = min(length_ns, key=lambda owner: length_ns[owner])
        for owner, (_, begin_ns, leave_ns) in rows.items():
            is_own = int(stage_of[owner] == stage_of[latest])
            met_ns = leave_ns - length_ns[latest]
            times.setdefault(owner, []).append((begin_ns, met_ns, leave_ns, is_own))
    return {owner: np.array(sorted(some), dtype=np.int64) for owner, some in times.items()}


def _last_of_steps(
    job: Job, owner: int, stage: tuple[int, ...], steps: IntArray
) -> dict[int, tuple[int, int, int]]:
    """Return a device's last collective of its stage alone in each step.

    Returns:
        By step its end in the common clock, and its begin and end in the report's own.
    """
    last: dict[int, tuple[int, int, int]] = {}
    for sequence in job.collectives.sequences:
        members = set(sequence.owners)
        if sequence.operation == SEND_RECV or owner not in members or not members <= set(stage):
            continue
        begin_ns, _, leave_ns = meets_and_leaves(sequence, owner)
        own_ns = job.own_end_ns(sequence, sequence.owners.index(owner))
        end_ns = job.collectives.common_ns(job.collectives.devices[owner].clock, own_ns)
        step = job.job_step(owner, own_ns)
        for row in np.flatnonzero(np.isin(step, steps)).tolist():
            times = int(end_ns[row]), int(begin_ns[row]), int(leave_ns[row])
            last[int(step[row])] = max(last.get(int(step[row]), times), times)
    return last


def _times(
    job: Job, owner: int, split: StepSplit, working: IntArray, drains: IntArray | None
) -> _Times:
    """Divide the windows of a device.

    Args:
        job: All devices.
        owner: Which one.
        split: What it tells by itself.
        working: When devices of other stages worked: shape (n, 2), the common clock.
        drains: When it is in collectives of the whole pipeline, see `_drains`; None if never.
    """
    windows = job.steps[owner].window_ns
    spans = communication_spans(job.collectives, owner, job.stages)
    if drains is not None:
        spans = _with_drains(job, owner, spans, drains)
    matched = {
        name: _within(subtract_intervals(spans[detail], job.steps[owner].hidden), windows)
        for name, detail in (
            ("transfer_ns", TRANSFER),
            ("wait_stage_ns", BUBBLE),
            ("wait_own_ns", WAITING),
        )
    }
    parts = {
        "compute_ns": split.compute_ns,
        **matched,
        "not_matched_ns": split.communication_ns - sum(matched.values()),
        "copy_ns": split.copy_ns,
        "overhead_ns": split.overhead_ns,
        "idle_ns": split.idle_ns,
    }
    if split.host is None:
        return _Times(parts, None)
    # What is idle before the first operation of a step while other stages work is the schedule's.
    clock = job.collectives.devices[owner].clock
    begin_ns, first_ns = (
        job.collectives.common_ns(clock, at_ns) for at_ns in (windows[:, 0], split.host.first_ns)
    )
    free_ns = first_ns - begin_ns
    free_ns = free_ns - (covered_ns(first_ns, working) - covered_ns(begin_ns, working))
    lead_ns = np.minimum(split.host.lead_ns, np.maximum(free_ns, 0))
    return _Times(parts, split.host.inner_ns + lead_ns)


def _with_drains(
    job: Job, owner: int, spans: Mapping[str, IntArray], drains: IntArray
) -> dict[str, IntArray]:
    """Return a device's communication with what it does in some collectives, see `_drains`."""
    begin_ns, met_ns, leave_ns, is_own = drains.T
    # Beside them it may still send to another stage.
    others = [item for item in job.collectives.sequences if item.operation == SEND_RECV]
    _, sent = waiting_and_transfer(others, owner, job.stages.staged)
    transfer = union_intervals(*np.concatenate((sent, np.column_stack((met_ns, leave_ns)))).T)
    result = {}
    for detail, some in spans.items():
        rows = is_own == (detail == WAITING)
        waits = subtract_intervals(np.column_stack((begin_ns, met_ns))[rows], transfer)
        here = transfer if detail == TRANSFER else waits
        rest = subtract_intervals(some, drains[:, [0, 2]])
        result[detail] = union_intervals(*np.concatenate((rest, here)).T)
    return result


def _within(spans: IntArray, windows: IntArray) -> IntArray:
    return covered_ns(windows[:, 1], spans) - covered_ns(windows[:, 0], spans)


def _others(job: Job, chain: Chain, owner: int) -> IntArray:
    """Return when devices of other stages worked: from the first to the last operation of steps."""
    starts, ends = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for some in chain.stages:
        for other in some if owner not in some else ():
            device, clock = job.steps[other], job.collectives.devices[other].clock
            if device.split is not None and device.split.host is not None:
                first_ns, end_ns = device.split.host.first_ns, device.window_ns[:, 1]
                starts.append(job.collectives.common_ns(clock, first_ns))
                ends.append(job.collectives.common_ns(clock, end_ns))
    start_ns, end_ns = np.concatenate(starts), np.concatenate(ends)
    return union_intervals(start_ns, np.maximum(start_ns, end_ns))


def _picked(times: _Times, rows: IntArray) -> _Times:
    host_ns = None if times.host_ns is None else times.host_ns[rows]
    return _Times({name: values[rows] for name, values in times.parts.items()}, host_ns)


def _summed(times: _Times, whole: Any) -> _Times:
    """Return the whole windows of a device as one."""
    host_ns = None if times.host_ns is None else times.host_ns[whole].sum(keepdims=True)
    parts = {name: values[whole].sum(keepdims=True) for name, values in times.parts.items()}
    return _Times(parts, host_ns)
