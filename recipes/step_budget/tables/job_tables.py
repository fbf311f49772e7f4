"""Tables about the steps of the job: their classes, what a fix gains at most, two paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from nsys_llm.critical_path.job.meetings import TimedSteps
from nsys_llm.critical_path.job.sums import Charged
from nsys_llm.critical_path.job.walk import NO_RANK, JobWalk
from nsys_llm.critical_path.path.blocks import HOST, Charge
from nsys_llm.critical_path.path.classes import CLASS_NAMES, EDGE_NAMES, WAIT_FOR_RANK
from nsys_llm.critical_path.rank.rank import RankRows
from nsys_llm.numeric.grouping import positions
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, percent

#: Rows of a path that are listed one by one; of a longer path, stretches of one class that follow
#: each other on one rank are one row.
_MOST_PARTS: Final = 5_000
MEDIAN: Final = "median"
WORST: Final = "worst"


@dataclass(frozen=True)
class JobPaths:
    """The steps of the job, and their paths.

    Attributes:
        walks: One a step, and one over all that count, if any does.
        zero_ns: The common clock when the first rank's profile began.
    """

    rows: RankRows
    job: TimedSteps
    walks: Sequence[JobWalk]
    charged: Charged
    zero_ns: int

    @property
    def wall_ns(self) -> IntArray:
        """Length of each step."""
        return np.diff(self.job.edge_ns)


def job_columns(paths: JobPaths) -> Columns:
    """Return the table job_steps."""
    job, steps_n = paths.job, len(paths.job.mark)
    sums = paths.charged.by_charge.by_key([charge.kind for charge in paths.charged.charges])
    none = np.zeros(len(paths.walks), dtype=np.int64)
    certain = paths.charged.by_charge.certain_ns[:, :steps_n].sum(axis=0)
    return {
        "step": np.arange(steps_n),
        "mark": list(job.mark),
        "start_ns": job.edge_ns[:-1] - paths.zero_ns,
        "end_ns": job.edge_ns[1:] - paths.zero_ns,
        "wall_ns": paths.wall_ns,
        "ranks_n": job.ranks_n,
        **{
            f"{name}_ns": sums.get(code, (none, none))[0][:steps_n]
            for code, name in enumerate(CLASS_NAMES)
            if code != WAIT_FOR_RANK
        },
        "certain_ns": certain,
        "certain_pct": percent(certain, paths.wall_ns),
    }


def statistics(values: IntArray, wall_ns: IntArray, certain_ns: IntArray) -> dict[str, Any]:
    """Return what a class takes in steps.

    Args:
        values: Shape (steps,), ns, of steps that count.
        certain_ns: Likewise, the part to which no inferred edge led.
    """
    total, wall = int(values.sum()), int(wall_ns.sum())
    p50_ns, p99_ns = np.percentile(values, (50, 99)).tolist()
    return {
        "mean_ns": total / values.size,
        "p50_ns": p50_ns,
        "p99_ns": p99_ns,
        "share_pct": 100.0 * total / wall if wall else None,
        "certain_pct": 100.0 * int(certain_ns.sum()) / total if total else None,
        "steps_n": int((values > 0).sum()),
    }


def job_class_rows(paths: JobPaths) -> list[dict[str, Any]]:
    """Return the rows of step_classes that are about the job: classes, and details of each."""
    counted = paths.job.counted
    if not counted.size:
        return []
    wall_ns = paths.wall_ns[counted]
    names = [(CLASS_NAMES[charge.kind], charge.detail or None) for charge in paths.charged.charges]
    rows = []
    for keys in ([(kind, None) for kind, _ in names], names):
        for (kind, detail), (values, certain) in paths.charged.by_charge.by_key(keys).items():
            if keys is names and detail is None:
                continue
            rows.append(
                {
                    "scope": "job",
                    "class": kind,
                    "detail": detail,
                    **statistics(values[counted], wall_ns, certain[counted]),
                }
            )
    rows = [row for row in rows if row["mean_ns"] > 0]
    return sorted(
        rows,
        key=lambda row: (
            row["detail"] is not None,
            -row["mean_ns"],
            row["class"],
            row["detail"] or "",
        ),
    )


def path_columns(paths: JobPaths) -> Columns:
    """Return the table path: the median and the worst step, from the end back."""
    parts = [_path_columns(paths, which, step) for which, step in _chosen(paths)]
    return (
        {name: [cell for part in parts for cell in part[name]] for name in parts[0]}
        if parts
        else {}
    )


def _chosen(paths: JobPaths) -> list[tuple[str, int]]:
    """Return the step of median length, of two the first one, and the longest."""
    counted = paths.job.counted
    if not counted.size:
        return []
    order = counted[np.argsort(paths.wall_ns[counted], kind="stable")]
    return [(MEDIAN, int(order[(order.size - 1) // 2])), (WORST, int(order[-1]))]


def _lane(paths: JobPaths, rank: int, charge: Charge) -> str:
    if rank == NO_RANK:
        return "not recorded"
    where = "host" if charge.device_id == HOST else f"device {charge.device_id}"
    return f"{paths.rows[rank][0].file}, {where}"


def _path_columns(paths: JobPaths, which: str, step: int) -> Columns:
    pieces = paths.charged.pieces_of(step)
    charges = paths.charged.charges
    # What differs by the state of its thread alone is one stretch.
    plain = {charge: replace(charge, state="", function="") for charge in charges}
    code = positions(plain.values(), dict.fromkeys(plain.values()))[pieces.charge]
    alike = (code[1:] == code[:-1]) & (pieces.charge[1:] != pieces.charge[:-1])
    alike &= pieces.rank[1:] == pieces.rank[:-1]
    group = np.concatenate(([0], np.cumsum(~alike)))[: pieces.walk.size]
    if group.max(initial=-1) >= _MOST_PARTS:
        kind = np.array([charge.kind for charge in charges], dtype=np.int64)[pieces.charge]
        changes = (kind[1:] != kind[:-1]) | (pieces.rank[1:] != pieces.rank[:-1])
        group = np.concatenate(([0], np.cumsum(changes)))
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if group.size else group
    last = np.append(first[1:], group.size) - 1
    longest = np.lexsort((-pieces.time_ns, group))[first]
    start_ns, end_ns = pieces.start_ns[last], pieces.end_ns[first]
    doubtful_n = np.add.reduceat(pieces.doubtful, first, dtype=np.int64) if group.size else group
    parts = [charges[code] for code in pieces.charge[longest].tolist()]
    places = pieces.rank[longest].tolist()
    ranks = {place: row[0] for place, row in enumerate(paths.rows)}
    known = [ranks.get(place) for place in places]  # none: `NO_RANK`
    return {
        "which": [which] * len(parts),
        "step": [step] * len(parts),
        "part": np.arange(len(parts)),
        "rank": [rank and rank.number for rank in known],
        "file": [rank and rank.file for rank in known],
        "device_id": [None if it.device_id == HOST else it.device_id for it in parts],
        "lane": [_lane(paths, place, it) for place, it in zip(places, parts, strict=True)],
        "class": [CLASS_NAMES[it.kind] for it in parts],
        "activity": [it.detail for it in parts],
        "start_ns": start_ns - paths.zero_ns,
        "end_ns": end_ns - paths.zero_ns,
        "duration_ns": end_ns - start_ns,
        "edge": [EDGE_NAMES[it.edge] for it in parts],
        "certain": doubtful_n == 0,
    }
