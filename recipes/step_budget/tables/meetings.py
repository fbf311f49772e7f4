"""Which communication of one rank is which of another's, and who came last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.critical_path.path.forest import PathForest
from nsys_llm.critical_path.rank.rank import RankBudget
from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.job_steps import usual_difference
from nsys_llm.job.collectives.matched import (
    MatchedCollectives,
    Sequenced,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import Rank

#: Operations of one device that begin at the same instant; more are not told apart.
_ALIKE: Final = 4

RankRows = Sequence[tuple[Rank, RankBudget]]


@dataclass(frozen=True)
class Meetings:
    """Collectives that ranks had together, those that there is an instant at which all are in.

    Attributes:
        of_member: For each rank, shape (members,), the collective; -1 for none.
        starts_ns: For each rank, shape (members,), when its member began, on the common clock; 0
            where it is in no collective.
        last_ns: Shape (collectives,), when the last rank came, on the common clock.
        last_rank: Shape (collectives,), position of that rank.
        last_member: Shape (collectives,), its member.
        is_clear: Shape (collectives,), whether clocks are sure who came last.
        pairs: For two ranks, steps of the one minus those of the other in the collectives that
            they had together: value and how often.
    """

    of_member: tuple[IntArray, ...]
    starts_ns: tuple[IntArray, ...]
    last_ns: IntArray
    last_rank: IntArray
    last_member: IntArray
    is_clear: IntArray
    pairs: Mapping[tuple[int, int], tuple[int, float]]
    collectives: MatchedCollectives

    def common_ns(self, rank: Rank, at_ns: IntArray) -> IntArray:
        """Return instants of a rank's profile on the common clock."""
        return self.collectives.common_ns(self.collectives.clock_of[rank.key.path], at_ns)


def meet(rows: RankRows, collectives: MatchedCollectives) -> Meetings:
    """Return what ranks did together."""
    place = {rank.key: index for index, (rank, _) in enumerate(rows)}
    of_member = [np.full(budget.forest.members.start_ns.size, -1, np.int64) for _, budget in rows]
    starts = [np.zeros_like(item) for item in of_member]
    parts: list[IntArray] = []
    differences: dict[tuple[int, int], list[IntArray]] = {}
    begun = 0
    for sequence in collectives.sequences:
        if sequence.confidence == LOW_CONFIDENCE or not len(sequence):
            continue
        ranks = [place[collectives.devices[owner].rank.key] for owner in sequence.owners]
        members = _members(sequence, collectives, [rows[rank][1].forest for rank in ranks])
        known = sequence.waits.met & (members >= 0).all(axis=0)
        n = int(known.sum())
        root_ns = collectives.coarse_ns[
            collectives.clocks[collectives.devices[sequence.owners[0]].clock].root
        ]
        for rank, member, start in zip(ranks, members, sequence.start_ns, strict=True):
            of_member[rank][member[known]] = np.arange(begun, begun + n)
            starts[rank][member[known]] = start[known] + root_ns
        begun += n
        parts.append(_arrivals(sequence, root_ns, ranks, members)[:, known])
        _add_differences(differences, ranks, members[:, known], rows)
    arrivals = np.concatenate([np.empty((4, 0), dtype=np.int64), *parts], axis=1)
    last_ns, last_rank, last_member, is_clear = arrivals
    return Meetings(
        of_member=tuple(of_member),
        starts_ns=tuple(starts),
        last_ns=last_ns,
        last_rank=last_rank,
        last_member=last_member,
        is_clear=is_clear,
        pairs={pair: usual_difference(np.concatenate(some)) for pair, some in differences.items()},
        collectives=collectives,
    )


def _members(
    sequence: Sequenced, collectives: MatchedCollectives, forests: Sequence[PathForest]
) -> IntArray:
    """Return the member of each rank in each collective, shape (ranks, collectives); -1: none."""
    members = []
    for lane, rows, forest in zip(
        sequence.matched.lanes, sequence.matched.rows, forests, strict=True
    ):
        device = collectives.devices[lane.owner]
        back_ns = collectives.coarse_ns[device.clock]
        start, end = lane.track.start_ns[rows] - back_ns, lane.track.end_ns[rows] - back_ns
        first = np.searchsorted(forest.members.start_ns, start)
        member = np.full(start.shape, -1, dtype=np.int64)
        for further in range(_ALIKE):
            at = np.minimum(first + further, max(forest.members.start_ns.size - 1, 0))
            if not forest.members.start_ns.size:
                break
            same = (forest.members.start_ns[at] == start) & (forest.members.end_ns[at] == end)
            same &= forest.members.device[at] == device.device_id
            member = np.where(same & (member < 0), at, member)
        members.append(member)
    return np.stack(members)


def _arrivals(
    sequence: Sequenced, root_ns: int, ranks: Sequence[int], members: IntArray
) -> IntArray:
    """Return when the last rank came, which it is, its member, and whether that is clear."""
    late = sequence.waits.late
    clear = sequence.waits.late_by_ns >= sequence.residual_ns
    return np.stack(
        (
            sequence.waits.last_start_ns + root_ns,
            np.array(ranks, dtype=np.int64)[late],
            np.take_along_axis(members, late[None, :], axis=0)[0],
            clear.astype(np.int64),
        )
    )


def _add_differences(
    differences: dict[tuple[int, int], list[IntArray]],
    ranks: Sequence[int],
    members: IntArray,
    rows: RankRows,
) -> None:
    """Add how far the steps of ranks are apart, each against the first of the sequence."""
    first = rows[ranks[0]][1].forest.members.step[members[0]]
    for rank, member in zip(ranks[1:], members[1:], strict=True):
        step = rows[rank][1].forest.members.step[member]
        known = (first >= 0) & (step >= 0)
        if known.any() and rank != ranks[0]:
            differences.setdefault((ranks[0], rank), []).append((step - first)[known])
