"""Where each step of a stage went, and what its bubble is made of. Exact integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from nsys_llm.job.collectives.chains import Chain
from nsys_llm.job.communication_split import communication_spans
from nsys_llm.numeric.intervals import (
    IntArray,
    covered_in,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.taxonomy.wall_classes import BUBBLE, TRANSFER, WAITING

from .job import CommJob

_MATCHED: Final = {"transfer_ns": TRANSFER, "wait_stage_ns": BUBBLE, "wait_own_ns": WAITING}
_HOST: Final = "host_ns"

#: ns of each window of a device by column: the parts of a window, and of those idle the host's,
#: where causes are known; shape (windows,) each.
_Times = Mapping[str, IntArray]


def bubble_rows(job: CommJob) -> list[dict[str, Any]]:
    """Return one row a step and device of a pipeline."""
    rows = [row for chain in job.chains for row in _chain_rows(job, chain)]
    return sorted(rows, key=lambda row: (row["rank"], row["device_id"], row["step"] or 0))


def _chain_rows(job: CommJob, chain: Chain) -> list[dict[str, Any]]:
    times = {owner: _times(job, chain, owner) for owner in chain.owners}
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


def _times(job: CommJob, chain: Chain, owner: int) -> _Times:
    """Divide the windows of a device."""
    work = job.work[owner]
    assert work.wall is not None  # a stage sends
    spans = communication_spans(job.collectives, owner, job.stages)
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
