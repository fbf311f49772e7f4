"""What each device shows of its sends and receives by itself, without their partners."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from nsys_llm.job.collectives.stages import are_unplaced
from nsys_llm.job.job_steps import ahead_of_first, window_at
from nsys_llm.numeric.intervals import (
    covered_in,
    merged_unions,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.taxonomy.communication import SEND_RECV

from .job import CommJob

#: The shortest transfers, in percent of all: the others wait for as much as they are longer.
_SHORT_PCT: Final = 5


def exchange_rows(job: CommJob) -> list[dict[str, Any]]:
    """Return one row a device that sends or receives."""
    lanes = [
        [lane for lane in device.lanes if lane.operation == SEND_RECV and lane.start_ns.size]
        for device in job.collectives.devices
    ]
    if not any(lanes):
        return []
    short_ns = min(
        float(np.percentile(lane.end_ns - lane.start_ns, _SHORT_PCT))
        for some in lanes
        for lane in some
    )
    unplaced = are_unplaced(job.collectives, job.stages)
    places = _places(job)
    rows = []
    for owner, some in enumerate(lanes):
        if not some:
            continue
        work = job.work[owner]
        assert work.wall is not None  # it sends
        windows = work.window_ns[work.whole]
        spans = merged_unions([union_intervals(lane.start_ns, lane.end_ns) for lane in some])
        exposed_ns = int(covered_in(windows, subtract_intervals(spans, work.hidden)).sum())
        kernels_n = sum(lane.start_ns.size for lane in some)
        inside_n = sum(int((window_at(windows, lane.end_ns) >= 0).sum()) for lane in some)
        rows.append(
            {
                **job.who(owner),
                "place": places[owner],
                "kernels_n": kernels_n,
                "window_ns": int(np.diff(windows, axis=1).sum()),
                "compute_ns": int(work.wall.compute_ns[work.whole].sum()),
                "exposed_ns": exposed_ns,
                "wait_ns": max(round(exposed_ns - inside_n * short_ns), 0),
                "unplaced": unplaced,
            }
        )
    return rows


def _places(job: CommJob) -> list[int]:
    """Return a number for each device that those share which have collectives but messages."""
    every_n, links = len(job.work), dict[tuple[int, int], int]()
    for sequence in job.collectives.sequences:
        if sequence.operation != SEND_RECV and len(sequence) and len(sequence.owners) < every_n:
            links |= dict.fromkeys(pairwise(sequence.owners), 0)
    firsts = ahead_of_first(links, range(every_n))
    return [firsts[at][0] for at in range(every_n)]
