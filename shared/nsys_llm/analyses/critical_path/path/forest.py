"""All paths of one rank, as they travel: segments of stretches, and where communication begins.

Paths that meet go on together, so each stretch is there once, however many walks visit it.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.critical_path.path.blocks import Blocks, Charge
from nsys_llm.analyses.critical_path.path.compact import added_up
from nsys_llm.analyses.critical_path.path.ops import Bools
from nsys_llm.analyses.critical_path.path.outline import Members, Outline
from nsys_llm.analyses.critical_path.path.visits import Charging
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray


@dataclass(frozen=True)
class PathForest:
    """The paths of one rank.

    Attributes:
        charges: What codes stand for.
        begin_ns: Shape (stretches,), never later than the one above; `OPEN_NS` at the end of a
            path.
        code: Shape (stretches,), position in `charges`.
        doubtful: Shape (stretches,), whether an edge between it and its segment's top is inferred.
        first: Shape (segments + 1,): stretches of segment s lie at first[s] to first[s + 1].
        top_ns: Shape (segments,), when the first of them ends, the profile's clock.
        next: Shape (segments,), the segment below; -1 for none.
        idle_ns: Shape (segments,), how much of its time no device of the rank ran anything; 0 where
            it ends a path.
        member: Shape (segments,), the communication operation that it is; -1 for none.
        members: These operations.
    """

    charges: tuple[Charge, ...]
    begin_ns: IntArray
    code: npt.NDArray[np.int32]
    doubtful: Bools
    first: IntArray
    top_ns: IntArray
    next: IntArray
    idle_ns: IntArray
    member: IntArray
    members: Members

    def __len__(self) -> int:
        return self.top_ns.size

    def __getstate__(self) -> bytes:
        """Return what travels: far fewer bytes, since most begins are close to the one before."""
        state = {**vars(self), "begin_ns": np.diff(self.begin_ns, prepend=0)}
        return zlib.compress(pickle.dumps(state), level=1)

    def __setstate__(self, state: bytes) -> None:
        """Restore what travelled."""
        vars(self).update(pickle.loads(zlib.decompress(state)))
        self.begin_ns.cumsum(out=self.begin_ns)


def path_forest(
    outline: Outline, blocks: Blocks, whole: Bools, charging: Sequence[Charging]
) -> PathForest:
    """Return the paths of a rank as they travel, and add up what walks charge on the way."""
    places: dict[Charge, int] = {}
    begins, codes, doubts, counts = [], [], [], [np.zeros(1, dtype=np.int64)]
    for block in blocks:
        for sums in charging:
            sums.add(block)
        rows, begin_ns, sizes = added_up(block, whole)
        of_block = [places.setdefault(charge, len(places)) for charge in block.charges]
        codes.append(np.array(of_block, dtype=np.int32)[block.code[rows]])
        begins.append(begin_ns)
        doubts.append(block.parts.doubtful[rows])
        counts.append(sizes)
    charges = tuple(sorted(places))
    place = np.empty(len(charges), dtype=np.int32)
    place[[places[charge] for charge in charges]] = np.arange(len(charges))
    begin_ns = joined(begins)
    begins.clear()
    return PathForest(
        charges=charges,
        begin_ns=begin_ns,
        code=place[joined(codes)],
        doubtful=joined(doubts).astype(bool),
        first=np.cumsum(np.concatenate(counts)),
        top_ns=outline.top_ns,
        next=outline.segments.next,
        idle_ns=outline.idle_ns,
        member=outline.member,
        members=outline.members,
    )
