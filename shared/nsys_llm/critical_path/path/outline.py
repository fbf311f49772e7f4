"""The segments of all paths of one rank, without what their time is charged to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.critical_path.path.classes import COMMUNICATION, LAST_CERTAIN
from nsys_llm.critical_path.path.edges import Edges
from nsys_llm.critical_path.path.ops import Bools, PathOps
from nsys_llm.critical_path.path.stretches import OPEN_NS, bottoms_ns, natural_ends
from nsys_llm.critical_path.path.walk import Segments, segments
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.intervals import IntArray, covered_ns
from nsys_llm.trace.rank_trace import RankTrace

#: Communication operations of a rank at which paths may go on in other ranks, its earliest: as many
#: as are matched, see `nsys_llm.facts.lanes`.
MOST_MEMBERS: Final = 200_000


@dataclass(frozen=True)
class Members:
    """Communication operations at which paths may go on in other ranks, by start; (members,).

    Attributes:
        start_ns: The profile's clock.
        step: The step that launched it; -1 for none.
    """

    segment: IntArray
    start_ns: IntArray
    end_ns: IntArray
    device: IntArray
    step: IntArray


@dataclass(frozen=True)
class Outline:
    """The segments of one rank; arrays of shape (segments,), the profile's clock.

    Attributes:
        top_ns: When the first stretch of each ends.
        bottom_ns: When its last one begins; `OPEN_NS` at the end of a path.
        idle_ns: How much of its time no device of the rank ran anything; 0 where it ends a path.
        member: The communication operation that it is; -1 for none.
    """

    segments: Segments
    top_ns: IntArray
    bottom_ns: IntArray
    inferred: Bools
    idle_ns: IntArray
    member: IntArray
    members: Members

    def __len__(self) -> int:
        return self.top_ns.size

    @classmethod
    def of(
        cls, trace: RankTrace, edges: Edges, tails: IntArray, op_step: Positions
    ) -> tuple[Outline, IntArray]:
        """Return the paths of a rank from the ends of its steps and from its communication.

        Args:
            tails: Shape (k,), the operations that end windows; -1 for none.
            op_step: Shape (operations,), the step that launched each; -1 for none.

        Returns:
            The paths, and shape (k,): the segment that begins with each of the tails, -1 for none.
        """
        ops = edges.ops
        members = member_ops(ops)
        parts = segments(edges, np.concatenate((members, tails[tails >= 0])).tolist())
        top_ns, bottom_ns = natural_ends(edges, parts.top), bottoms_ns(edges, parts)
        segment_of = np.searchsorted(parts.top, members)
        member = np.full(parts.top.size, -1, dtype=np.int64)
        member[segment_of] = np.arange(members.size)
        outline = cls(
            segments=parts,
            top_ns=top_ns,
            bottom_ns=bottom_ns,
            inferred=_inferred(edges, parts),
            idle_ns=_idle_ns(trace, top_ns, bottom_ns),
            member=member,
            members=Members(
                segment_of,
                ops.start_ns[members],
                ops.end_ns[members],
                ops.device_ids[ops.stream[members]],
                op_step[members].astype(np.int64),
            ),
        )
        at = np.searchsorted(parts.top, np.maximum(tails, 0))
        return outline, np.where(tails >= 0, at, -1)


def member_ops(ops: PathOps) -> IntArray:
    """Return the operations at which paths may go on in other ranks, by start."""
    members = np.flatnonzero(ops.kind == COMMUNICATION)
    return members[np.argsort(ops.start_ns[members], kind="stable")][:MOST_MEMBERS]


def _inferred(edges: Edges, parts: Segments) -> Bools:
    nodes = np.flatnonzero(edges.edge > LAST_CERTAIN)
    until = np.searchsorted(nodes, parts.top, side="right")
    return np.asarray(until > np.searchsorted(nodes, parts.bottom, side="left"))


def _idle_ns(trace: RankTrace, top_ns: IntArray, bottom_ns: IntArray) -> IntArray:
    """Return for each segment how much of its time no device ran anything."""
    bottom_ns = np.where(bottom_ns == OPEN_NS, top_ns, bottom_ns)
    busy = trace.gpu_busy
    top_busy_ns, bottom_busy_ns = covered_ns(np.stack((top_ns, bottom_ns)), busy)
    return top_ns - bottom_ns - (top_busy_ns - bottom_busy_ns)
