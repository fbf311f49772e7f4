"""What experts compute between an exchange of tokens and the next, and what uneven ones cost.

An instance is a dispatch and the combine after it: two exchanges of one group in a row between
which every member runs expert kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.collectives.matched import Sequenced
from nsys_llm.analyses.collectives.waits import sure_ns
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.communication import SEND_RECV

from ..per_rank.experts import EXCHANGES, ExpertWork
from .groups import Group
from .job import Job

#: How the slowest rank moves.
EVEN: Final = "even"
ONE_RANK: Final = "one rank"
BY_LAYER: Final = "by layer"
ROTATING: Final = "rotating"

#: Longest over mean from which experts are uneven; steps that show how they move, and the share of
#: them in which a layer's slowest is the same; this project.
UNEVEN: Final = 1.1
_LEAST_STEPS: Final = 5
_SAME: Final = 0.8
_NAMED: Final = ("dispatch", "combine")
#: Part of how late the last rank comes that its experts explain.
_EXPLAINS: Final = 2
#: Sends and receives of fewer members are messages.
_LEAST_MEMBERS: Final = 3


@dataclass(frozen=True)
class _Exchange:
    """One exchange of a group; lists in the order of its members."""

    operation: str
    step: int
    last_start_ns: int
    late: int
    is_sure: bool
    late_ns: int
    begin: list[tuple[int, int]]
    end: list[tuple[int, int]]

    def between(self, before: _Exchange) -> tuple[list[int], list[int]]:
        """Return what members compute since the end of the one before, and of that experts."""
        pairs = list(zip(before.end, self.begin, strict=True))
        return [now[0] - then[0] for then, now in pairs], [now[1] - then[1] for then, now in pairs]


def expert_columns(job: Job, groups: Sequence[Group], names: Sequence[str]) -> Columns:
    """Return one row an instance."""
    rows = [row for group in groups for row in _group_rows(job, group)]
    return {name: [row[name] for row in rows] for name in names}


def _group_rows(job: Job, group: Group) -> list[dict[str, Any]]:
    works = [job.experts(owner) for owner in group.owners]
    known = [work for work in works if work is not None]
    if len(known) < len(works):
        return []
    exchanges = [
        item
        for number, rows in group.rows.items()
        if _is_exchange(job.collectives.sequences[number])
        for item in _exchanges(job, group, number, rows, known)
    ]
    exchanges.sort(key=lambda item: item.last_start_ns)
    rows, layers = [], dict[int, int]()
    for first, second in _instances(exchanges):
        times, _ = second.between(first)
        hot = int(np.argmax(times))
        layer = layers.get(second.step, 0)
        layers[second.step] = layer + 1
        mean_ns = sum(times) / len(times)
        rows.append(
            {
                "step": None if second.step == NULL_INT else second.step,
                "layer": layer,
                "group": group.number,
                "hot_rank": job.rank(group.owners[hot]),
                "max_ns": max(times),
                "mean_ns": mean_ns,
                "cost_ns": max(times) - mean_ns,
                "max_mean": max(times) / mean_ns if mean_ns else None,
                "on_path": second.late == hot and second.is_sure,
                "late_ns": first.late_ns + second.late_ns,
            }
        )
    pattern = _pattern(rows)
    return [{**row, "pattern": pattern} for row in rows]


def _is_exchange(sequence: Sequenced) -> bool:
    few = sequence.operation == SEND_RECV and len(sequence.owners) < _LEAST_MEMBERS
    return sequence.operation in EXCHANGES and not few


def _exchanges(
    job: Job, group: Group, number: int, rows: IntArray, works: Sequence[ExpertWork]
) -> list[_Exchange]:
    sequence = job.collectives.sequences[number]
    waits = sequence.waits
    rows = rows[waits.met[rows]]
    places = [sequence.owners.index(owner) for owner in group.owners]
    of_work = [
        work.rows(job.own_end_ns(sequence, place)[rows])
        for work, place in zip(works, places, strict=True)
    ]
    late_ns = _delays_ns(
        np.stack([sequence.start_ns[place][rows] for place in places]),
        np.stack([work.since_ns[at] for work, at in zip(works, of_work, strict=True)]),
    )
    sides = [
        [
            list(zip(work.compute_ns[side][at], work.expert_ns[side][at], strict=True))
            for work, at in zip(works, of_work, strict=True)
        ]
        for side in (0, 1)
    ]
    step = job.job_step(sequence.owners[0], job.own_end_ns(sequence, 0))[rows]
    late = [places.index(place) for place in waits.late[rows].tolist()]
    sure = waits.late_by_ns[rows] > sure_ns(sequence.residual_ns)
    return [
        _Exchange(
            sequence.operation,
            int(step[at]),
            int(waits.last_start_ns[row]),
            late[at],
            bool(sure[at]),
            int(late_ns[at]),
            [(int(some[at][0]), int(some[at][1])) for some in sides[0]],
            [(int(some[at][0]), int(some[at][1])) for some in sides[1]],
        )
        for at, row in enumerate(rows.tolist())
    ]


def _delays_ns(start_ns: IntArray, expert_ns: IntArray) -> IntArray:
    """Return how much later the last member came than the mean one, where experts explain it.

    Evened, a member comes when the mean one does. They explain it where the expert kernels of the
    last member, beyond the mean of all, take half of that.

    Args:
        start_ns: Shape (members, exchanges), the common clock.
        expert_ns: Likewise, expert kernels since the exchange before.
    """
    members_n = len(start_ns)
    # Of an exchange's own first arrival: sums of instants would outgrow 64 bits.
    since_ns = start_ns - start_ns.min(axis=0) if start_ns.size else start_ns
    last = since_ns.argmax(axis=0)[None]
    late_ns, more_ns = (
        members_n * np.take_along_axis(some, last, axis=0)[0] - some.sum(axis=0)
        for some in (since_ns, expert_ns)
    )
    uneven = (late_ns > 0) & (_EXPLAINS * more_ns >= late_ns)
    return np.where(uneven, late_ns // members_n, 0)


def _instances(exchanges: Sequence[_Exchange]) -> list[tuple[_Exchange, _Exchange]]:
    """Return the pairs of dispatch and combine.

    Names tell them, or which of two ways to pair them holds more expert work: what chooses experts
    runs before a dispatch, and is of experts too.
    """
    pairs = [
        (first, second)
        for first, second in pairwise(exchanges)
        if min(second.between(first)[1]) > 0
    ]
    named = [pair for pair in pairs if (pair[0].operation, pair[1].operation) == _NAMED]
    if named:
        return named
    place = {id(item): at for at, item in enumerate(exchanges)}
    ways: tuple[list[tuple[_Exchange, _Exchange]], ...] = ([], [])
    for pair in pairs:
        if not {pair[0].operation, pair[1].operation} & set(_NAMED):
            ways[place[id(pair[0])] % 2].append(pair)
    return max(ways, key=lambda way: sum(sum(second.between(first)[1]) for first, second in way))


def _pattern(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return how the slowest rank moves; None in too few steps."""
    inside = [row for row in rows if row["step"] is not None]
    if len({row["step"] for row in inside}) < _LEAST_STEPS:
        return None
    if sum(row["max_ns"] for row in inside) < UNEVEN * sum(row["mean_ns"] for row in inside):
        return EVEN
    by_layer: dict[int, list[int]] = {}
    for row in inside:
        by_layer.setdefault(row["layer"], []).append(row["hot_rank"])
    usual = {layer: max(set(hot), key=hot.count) for layer, hot in by_layer.items()}
    if all(hot.count(usual[layer]) >= _SAME * len(hot) for layer, hot in by_layer.items()):
        return ONE_RANK if len(set(usual.values())) == 1 else BY_LAYER
    return ROTATING
