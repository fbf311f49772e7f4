"""Where each step of a stage went, and what its bubble is made of. Exact integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from nsys_llm.job.collectives.chains import Chain
from nsys_llm.job.collectives.matched import meets_and_leaves
from nsys_llm.job.communication_split import communication_spans, waiting_and_transfer
from nsys_llm.numeric.intervals import (
    IntArray,
    covered_in,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import BUBBLE, TRANSFER, WAITING

from .job import CommJob

_MATCHED: Final = {"transfer_ns": TRANSFER, "wait_stage_ns": BUBBLE, "wait_own_ns": WAITING}
_HOST: Final = "host_ns"
#: All stages leave a collective within this part of its length, at most: 1 / 10.
_DRAIN_SPREAD: Final = 10

#: ns of each window of a device by column: the parts of a window, and of those idle the host's,
#: where causes are known; shape (windows,) each.
_Times = Mapping[str, IntArray]


def bubble_rows(job: CommJob) -> list[dict[str, Any]]:
    """Return one row a step and device of a pipeline."""
    rows = [row for chain in job.chains for row in _chain_rows(job, chain)]
    return sorted(rows, key=lambda row: (row["rank"], row["device_id"], row["step"] or 0))


def _chain_rows(job: CommJob, chain: Chain) -> list[dict[str, Any]]:
    drains = _drains(job, chain)
    times = {owner: _times(job, chain, owner, drains.get(owner)) for owner in chain.owners}
    steps = [None] if chain.steps is None else chain.steps.tolist()
    for owner, some in times.items():
        if chain.steps is None:
            whole = job.work[owner].whole
            times[owner] = {name: ns[whole].sum(keepdims=True) for name, ns in some.items()}
        else:
            picked = job.steps.rows(owner, chain.steps)
            times[owner] = {name: ns[picked] for name, ns in some.items()}
    compute_ns = np.array(
        [
            np.sum([times[owner]["compute_ns"] for owner in some], axis=0) // len(some)
            for some in chain.stages
        ]
    )
    most_ns = compute_ns.max(axis=0)
    schedule_ns = (compute_ns.sum(axis=0) - most_ns) // (chain.messages_n or 1)
    rows = []
    for stage, owners in enumerate(chain.stages):
        for owner in owners:
            for at, step in enumerate(steps):
                imbalance_ns = None if step is None else int(most_ns[at] - compute_ns[stage][at])
                by_schedule_ns = int(schedule_ns[at]) if chain.messages_n else None
                row = _row({name: int(ns[at]) for name, ns in times[owner].items()})
                parts = (row["bubble_ns"], by_schedule_ns, imbalance_ns)
                rest_ns = None if None in parts else parts[0] - parts[1] - parts[2]
                rows.append(
                    {
                        **job.who(owner),
                        "pipeline": chain.number,
                        "step": step,
                        **row,
                        "schedule_ns": by_schedule_ns,
                        "imbalance_ns": imbalance_ns,
                        "other_ns": rest_ns,
                        "microbatches_n": chain.messages_n,
                        "kind": chain.kind,
                    }
                )
    return rows


def _row(times: Mapping[str, int]) -> dict[str, Any]:
    """Return the parts of a window of a device, with its bubble."""
    window_ns = sum(ns for name, ns in times.items() if name != _HOST)
    host_ns, bubble_ns = times.get(_HOST), None
    if host_ns is not None:
        bubble_ns = times["wait_stage_ns"] + times["idle_ns"] - host_ns
    return {
        **times,
        "window_ns": window_ns,
        "host_ns": host_ns,
        "bubble_ns": bubble_ns,
        "bubble_pct": None if bubble_ns is None else 100.0 * bubble_ns / window_ns,
    }


def _drains(job: CommJob, chain: Chain) -> dict[int, IntArray]:
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
    job: CommJob, owner: int, stage: tuple[int, ...], steps: IntArray
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
        end_ns = job.collectives.common_ns(job.collectives.devices[owner].clock, leave_ns)
        step = job.steps.of(owner, leave_ns)
        for row in np.flatnonzero(np.isin(step, steps)).tolist():
            times = int(end_ns[row]), int(begin_ns[row]), int(leave_ns[row])
            last[int(step[row])] = max(last.get(int(step[row]), times), times)
    return last


def _times(job: CommJob, chain: Chain, owner: int, drains: IntArray | None) -> _Times:
    """Divide the windows of a device, with its `_drains`."""
    work = job.work[owner]
    assert work.wall is not None  # a stage sends
    spans = communication_spans(job.collectives, owner, job.stages)
    if drains is not None:
        spans = _with_drains(job, owner, spans, drains)
    matched = {
        name: covered_in(work.window_ns, subtract_intervals(spans[detail], work.hidden))
        for name, detail in _MATCHED.items()
    }
    parts = {
        "compute_ns": work.wall.compute_ns,
        **matched,
        "not_matched_ns": work.wall.communication_ns - sum(matched.values()),
        "copy_ns": work.wall.copies_ns,
        "overhead_ns": work.wall.profiler_ns,
        "idle_ns": work.wall.idle_ns,
    }
    host = work.host
    if host is None:
        return parts
    # What is idle before the first operation of a step while other stages work is the schedule's.
    clock = job.collectives.devices[owner].clock
    lead = np.stack(
        [job.collectives.common_ns(clock, at) for at in (work.window_ns[:, 0], host.first_ns)], 1
    )
    free_ns = lead[:, 1] - lead[:, 0] - covered_in(lead, _others(job, chain, owner))
    return {**parts, _HOST: host.inner_ns + np.minimum(host.lead_ns, np.maximum(free_ns, 0))}


def _with_drains(
    job: CommJob, owner: int, spans: Mapping[str, IntArray], drains: IntArray
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


def _others(job: CommJob, chain: Chain, owner: int) -> IntArray:
    """Return when devices of other stages worked: from the first to the last operation of steps."""
    starts, ends = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for some in chain.stages:
        for other in some if owner not in some else ():
            device, clock = job.work[other], job.collectives.devices[other].clock
            if device.host is not None:
                first_ns, end_ns = device.host.first_ns, device.window_ns[:, 1]
                starts.append(job.collectives.common_ns(clock, first_ns))
                ends.append(job.collectives.common_ns(clock, end_ns))
    start_ns, end_ns = np.concatenate(starts), np.concatenate(ends)
    return union_intervals(start_ns, np.maximum(start_ns, end_ns))
