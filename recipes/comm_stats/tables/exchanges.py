"""What devices show of exchanges by themselves: sends and receives without partners, and experts.

Experts compute between an exchange of tokens and the next, and the others wait for uneven ones.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.job.collectives.experts import UNEVEN, ExpertGroup, find_experts
from nsys_llm.job.collectives.stages import are_unplaced
from nsys_llm.job.job_steps import ahead_of_first, window_at
from nsys_llm.numeric.intervals import (
    covered_in,
    merged_unions,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.report.columns import nullable
from nsys_llm.report.records import Record, records
from nsys_llm.taxonomy.communication import SEND_RECV

from .job import CommJob

#: The shortest transfers, in percent of all: the others wait for as much as they are longer.
_SHORT_PCT: Final = 5

#: How the slowest rank moves.
EVEN: Final = "even"
ONE_RANK: Final = "one rank"
BY_LAYER: Final = "by layer"
ROTATING: Final = "rotating"

#: Steps that show how they move, and the share of them in which a layer's slowest is the same;
#: this project.
_LEAST_STEPS: Final = 5
_SAME: Final = 0.8


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


def expert_rows(job: CommJob, frame: pd.DataFrame) -> list[Record]:
    """Return one row an instance; `frame` is that of `collective_frame`."""
    if frame.empty:
        return []
    known = frame.set_index(["sequence_id", "ordinal"])[["group", "step"]]
    frames = [_rows(job, group, known) for group in find_experts(job.collectives)]
    return [row for rows in frames for row in records(rows)]


def _rows(job: CommJob, group: ExpertGroup, known: pd.DataFrame) -> pd.DataFrame:
    compute_ns, combines = group.compute_ns, group.dispatches + 1
    places = [column[combines] for column in (group.exchanges.number, group.exchanges.row)]
    rows = known.loc[pd.MultiIndex.from_arrays(places)].reset_index(drop=True)
    ranks = np.array([job.rank(owner) for owner in group.owners])
    waited_ns = group.waited_ns // ranks.size
    rows["layer"] = rows.groupby("step").cumcount()
    rows["hot_rank"] = ranks[compute_ns.argmax(axis=0)]
    rows["max_ns"], rows["mean_ns"] = compute_ns.max(axis=0), compute_ns.mean(axis=0)
    rows["cost_ns"] = rows["max_ns"] - rows["mean_ns"]
    rows["late_ns"] = waited_ns[group.dispatches] + waited_ns[combines]
    rows["pattern"] = _pattern(rows[rows["step"] != NULL_INT])
    return rows.assign(step=nullable(rows["step"].to_numpy()))


def _pattern(rows: pd.DataFrame) -> str | None:
    """Return how the slowest rank moves; None in too few steps."""
    if rows["step"].nunique() < _LEAST_STEPS:
        return None
    if rows["max_ns"].sum() < UNEVEN * rows["mean_ns"].sum():
        return EVEN
    usual = rows.groupby("layer")["hot_rank"].transform(lambda hot: hot.mode()[0])
    same = (rows["hot_rank"] == usual).groupby(rows["layer"]).mean()
    if (same < _SAME).any():
        return ROTATING
    return ONE_RANK if usual.nunique() == 1 else BY_LAYER
