"""Where the time beyond the roofline goes: the table `lost`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from nsys_llm.facts.roofline.step_classes import StepClasses
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.communication_split import exposed_ns, waiting_and_transfer
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, TRANSFER, WAITING
from nsys_llm.trace.identity import Rank

from .peaks import RankRows, Row

OVERLAPS: Final = "the roofline is longer than the GPU computes"


def lost_rows(ranks: RankRows, steps: Sequence[Row], collectives: MatchedCollectives) -> list[Row]:
    """Return the rows of `lost`: of each rank and phase what steps take beyond their roofline.

    Args:
        steps: Rows of `step_roofline`.
    """
    known: dict[tuple[int, str, str | None], dict[int, Row]] = {}
    for row in steps:
        if row["roofline_ns"] is not None:
            known.setdefault((row["rank"], row["file"], row["phase"]), {})[row["step"]] = row
    parts = {rank.number: (rank, part.classes) for rank, part in ranks}
    made: list[Row] = []
    for key, rows in known.items():
        rank, classes = parts[key[0]]
        if classes is not None:
            chosen = np.isin(classes.row, list(rows))
            spent = {
                name: int(values[chosen].sum())
                for name, values in _divided(rank, classes, collectives).items()
            }
            made += _of_phase(key, list(rows.values()), spent)
    return made


def _of_phase(
    key: tuple[int, str, str | None], steps: Sequence[Row], spent: Mapping[str, int]
) -> list[Row]:
    """Return a row for each class that holds time, the largest first; computation always."""
    lost_ns = sum(row["lost_ns"] for row in steps)
    beyond_ns = spent[COMPUTE] - sum(row["roofline_ns"] for row in steps)
    lost = {name: time_ns for name, time_ns in spent.items() if time_ns} | {COMPUTE: beyond_ns}
    overlaps = beyond_ns < 0
    return [
        {
            **dict(zip(("rank", "file", "phase"), key, strict=True)),
            "class": name,
            "steps_n": len(steps),
            "total_ns": None if (is_null := overlaps and name == COMPUTE) else total_ns,
            "lost_ns": None if is_null else total_ns / len(steps),
            "lost_pct": None if overlaps or not lost_ns else 100 * total_ns / lost_ns,
            "reason": OVERLAPS if is_null else None,
        }
        for name, total_ns in sorted(lost.items(), key=lambda item: -item[1])
    ]


def _divided(
    rank: Rank, classes: StepClasses, collectives: MatchedCollectives
) -> dict[str, IntArray]:
    """Return the classes with waiting and transfer apart, where collectives are matched."""
    spent = dict(classes.spent_ns)
    owner = collectives.owners.get((rank.key, classes.device_id))
    if owner is not None:
        spans = waiting_and_transfer(collectives.sequences, owner)
        waited, moved = exposed_ns(*spans, classes.communicating, classes.spans[:, 0])
        rest = spent[COMMUNICATION] - waited - moved
        spent |= {WAITING: waited, TRANSFER: moved, COMMUNICATION: rest}
    return spent
