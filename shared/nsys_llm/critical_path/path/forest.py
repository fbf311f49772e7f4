"""All paths of one rank, as they travel: segments of stretches, and where communication begins.

Paths that meet go on together, so each stretch is there once, however many walks visit it.

What nobody cuts is added up within its segment, which makes paths small: a walk of the job is cut
where a step of the job ends, between the end of a step on this rank and the end of the next
collective; and paths of two steps are listed. Segments there keep their stretches. The others keep
one for each thing that they charge, so that all sums stay exact.
"""

from __future__ import annotations

import pickle
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.blocks import Block, Blocks, Charge
from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.critical_path.path.outline import Charging, Members, Outline
from nsys_llm.critical_path.path.stretches import OPEN_NS
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray, union_intervals

#: Stretches that a rank sends as they are; 13 bytes each. Ours.
MOST_WHOLE: Final = 6_000


@dataclass(frozen=True)
class PathForest:
    """The paths of one rank.

    Attributes:
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
        vars(self).update(pickle.loads(zlib.decompress(state)))
        self.begin_ns.cumsum(out=self.begin_ns)


def path_forest(outline: Outline, blocks: Blocks, whole: Bools, charging: Charging) -> PathForest:
    """Return the paths of a rank as they travel, and add up what walks charge on the way."""
    places: dict[Charge, int] = {}
    begins, codes, doubts, counts = [], [], [], [np.zeros(1, dtype=np.int64)]
    for block in blocks:
        charging.add(block)
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


def kept_whole(outline: Outline, blocks: Blocks, cuts: IntArray, shown: IntArray) -> Bools:
    """Return which segments of a rank keep their stretches: all of them, if they are few.

    Args:
        cuts: Shape (k, 2), in any order: spans of time in which walks may end.
        shown: Shape (k, 2), in any order: spans whose paths are listed, the most important last;
            they are added up too where they have too many stretches.
    """
    every = np.ones(len(outline), dtype=bool)
    if _few(blocks, every):
        return every
    whole = _within(outline, cuts)
    for span in shown[::-1]:
        more = whole | _within(outline, span[None, :])
        if _few(blocks, more):
            whole = more
    return whole


def _few(blocks: Blocks, chosen: Bools) -> bool:
    """Return whether segments have so few stretches that all of these travel."""
    # A node has two at least; of many, these need not be made.
    if 2 * int(blocks.nodes_n[chosen].sum()) > MOST_WHOLE:
        return False
    return blocks.stretches(np.flatnonzero(chosen)).begin_ns.size <= MOST_WHOLE


def _within(outline: Outline, spans: IntArray) -> Bools:
    """Return which segments have time in any of some spans."""
    spans = union_intervals(spans[:, 0], spans[:, 1])
    # What ends a path has no begin; where it begins to be that is enough.
    ended = outline.bottom_ns == OPEN_NS
    bottom = np.where(ended, outline.top_ns, outline.bottom_ns)
    low = np.searchsorted(spans[:, 1], bottom, side="right")
    high = np.searchsorted(spans[:, 0], outline.top_ns, side="left")
    return np.asarray((high > low) | ended)


def added_up(block: Block, whole: Bools) -> tuple[IntArray, IntArray, IntArray]:
    """Return rows of a block that stand for sums, their begins, and how many each segment has."""
    parts, first = block.parts, block.parts.first
    sizes = np.diff(first)
    segment = np.repeat(np.arange(sizes.size), sizes)
    whole = whole[block.low : block.low + sizes.size]
    if whole.all():
        return np.arange(segment.size), parts.begin_ns, sizes
    nth = np.arange(segment.size) - first[segment]
    charges_n = len(block.charges)
    what = np.where(whole[segment], nth, parts.doubtful * charges_n + block.code)
    # A walk may enter below the top, where an operation began inside of its call: what the first
    # stretch is charged to stays first, since that is what the walk leaves out.
    what = np.where(what == what[first[:-1]][segment], 0, what + 1)
    key = segment * (max(int(sizes.max()), 2 * charges_n) + 1) + what
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    sums = np.add.reduceat((parts.ends_ns() - parts.begin_ns)[order], np.flatnonzero(new))
    chosen = order[new]
    counts = np.bincount(segment[chosen], minlength=sizes.size).astype(np.int64)
    spent = np.cumsum(sums)
    before = np.concatenate(([0], spent))[np.cumsum(counts) - counts]
    begins = parts.top_ns[segment[chosen]] - (spent - before[segment[chosen]])
    return chosen, begins, counts
