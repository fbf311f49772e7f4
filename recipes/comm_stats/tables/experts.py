"""What experts compute between an exchange of tokens and the next, and what uneven ones cost.

An instance is a dispatch and the combine after it: two exchanges of one group in a row between
which every member runs expert kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.collectives.matched import Sequenced
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

from ..per_rank.experts import EXCHANGES, ExpertWork
from .groups import CommGroup
from .job import CommJob

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
class _Exchanges:
    """Exchanges of a group, in order of time; arrays of shape (exchanges,) or as they say.

    Attributes:
        last_start_ns: When the last member came, the common clock.
        operation: Names.
        step: Of the job; NULL_INT for none.
        late_ns: See `_delays_ns`.
        compute_ns: Shape (2, members, exchanges), compute time before the begin and the end.
        expert_ns: Likewise, of that expert kernels.
    """

    last_start_ns: IntArray
    operation: npt.NDArray[Any]
    step: IntArray
    late_ns: IntArray
    compute_ns: IntArray
    expert_ns: IntArray


def expert_rows(job: CommJob, groups: Sequence[CommGroup]) -> list[dict[str, Any]]:
    """Return one row an instance."""
    return [row for group in groups for row in _group_rows(job, group)]


def _group_rows(job: CommJob, group: CommGroup) -> list[dict[str, Any]]:
    works = [work for owner in group.owners if (work := job.experts(owner)) is not None]
    sequences = job.collectives.sequences
    parts = [
        _exchanges(job, group, sequences[number], rows, works)
        for number, rows in group.rows.items()
        if len(works) == len(group.owners) and _is_exchange(sequences[number])
    ]
    if not parts:
        return []
    order = np.argsort(joined([part.last_start_ns for part in parts]), kind="stable")
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    every = _Exchanges(*(np.concatenate(some, axis=-1)[..., order] for some in columns))
    times = every.compute_ns[0, :, 1:] - every.compute_ns[1, :, :-1]
    rows, layers = [], Counter[int]()
    for at in _instances(every).tolist():
        hot, step = int(times[:, at].argmax()), int(every.step[at + 1])
        longest_ns, mean_ns = int(times[hot, at]), float(times[:, at].mean())
        rows.append(
            {
                "step": None if step == NULL_INT else step,
                "layer": layers[step],
                "group": group.number,
                "hot_rank": job.rank(group.owners[hot]),
                "max_ns": longest_ns,
                "mean_ns": mean_ns,
                "cost_ns": longest_ns - mean_ns,
                "late_ns": int(every.late_ns[at : at + 2].sum()),
            }
        )
        layers[step] += 1
    pattern = _pattern(rows)
    return [{**row, "pattern": pattern} for row in rows]


def _is_exchange(sequence: Sequenced) -> bool:
    few = sequence.operation == SEND_RECV and len(sequence.owners) < _LEAST_MEMBERS
    return sequence.operation in EXCHANGES and not few


def _exchanges(
    job: CommJob, group: CommGroup, sequence: Sequenced, rows: IntArray, works: Sequence[ExpertWork]
) -> _Exchanges:
    waits = sequence.waits
    rows = rows[waits.met[rows]]
    places = [sequence.owners.index(owner) for owner in group.owners]
    of_work = [
        (work, work.rows(sequence.own_end_ns(place)[rows]))
        for work, place in zip(works, places, strict=True)
    ]
    return _Exchanges(
        waits.last_start_ns[rows],
        np.full(rows.size, sequence.operation, dtype=object),
        job.steps.of(sequence.owners[0], sequence.own_end_ns(0)[rows]),
        _delays_ns(
            np.stack([sequence.start_ns[place][rows] for place in places]),
            np.stack([work.since_ns[at] for work, at in of_work]),
        ),
        np.stack([work.compute_ns[:, at] for work, at in of_work], axis=1),
        np.stack([work.expert_ns[:, at] for work, at in of_work], axis=1),
    )


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


def _instances(every: _Exchanges) -> IntArray:
    """Return the positions of dispatches; the combine of each follows.

    Names tell them, or which of two ways to pair them holds more expert work: what chooses experts
    runs before a dispatch, and is of experts too.
    """
    expert_ns = every.expert_ns[0, :, 1:] - every.expert_ns[1, :, :-1]
    pairs = expert_ns.min(axis=0) > 0
    first, second = every.operation[:-1], every.operation[1:]
    named = pairs & (first == _NAMED[0]) & (second == _NAMED[1])
    if named.any():
        return np.flatnonzero(named)
    pairs &= ~(np.isin(first, _NAMED) | np.isin(second, _NAMED))
    rows = np.flatnonzero(pairs)
    ways = rows[rows % 2 == 0], rows[rows % 2 == 1]
    return max(ways, key=lambda way: int(expert_ns[:, way].sum()))


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
