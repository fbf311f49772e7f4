"""All paths of one rank, as they travel: segments of stretches, and where communication begins.

Paths that meet go on together, so each stretch is there once, however many walks visit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.critical_path.path.blocks import Blocks, Charge
from nsys_llm.analyses.critical_path.path.compact import added_up
from nsys_llm.analyses.critical_path.path.ops import Bools
from nsys_llm.analyses.critical_path.path.outline import Outline
from nsys_llm.analyses.critical_path.path.stretches import OPEN_NS, ends_ns
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
        member_segment: Shape (members,), the segment of each communication operation.
        member_start_ns: Shape (members,).
        member_end_ns: Likewise.
        member_device: Shape (members,), CUDA device id.
        member_step: Shape (members,), the step that launched it; -1 for none.
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
    member_segment: IntArray
    member_start_ns: IntArray
    member_end_ns: IntArray
    member_device: IntArray
    member_step: IntArray

    def __len__(self) -> int:
        return self.top_ns.size

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels: numbers as short as they allow, stretches by their lengths."""
        is_open = self.begin_ns == OPEN_NS
        lengths = ends_ns(self.begin_ns, self.first, self.top_ns) - self.begin_ns
        short, at, long_ns = _long_apart(np.where(is_open, 0, lengths))
        state = {**vars(self), "begin_ns": short, "long": at, "long_ns": long_ns}
        state |= {"open": np.flatnonzero(is_open), "first": np.diff(self.first)}
        state["doubtful"] = np.packbits(self.doubtful)
        del state["member"], state["member_end_ns"]  # follow from the segments of members
        return {name: _shortened(value) for name, value in state.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what travelled."""
        values = dict(state)
        for name, value in values.items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "i" and name != "code":
                values[name] = value.astype(np.int64)
        values["code"] = values["code"].astype(np.int32)
        lengths = values["begin_ns"].astype(np.int64)
        lengths[values.pop("long")] = values.pop("long_ns")
        spent, sizes = np.cumsum(lengths), values["first"]
        values["first"] = first = np.concatenate(([0], np.cumsum(sizes)))
        before = np.concatenate(([0], spent))[first[:-1]]
        values["begin_ns"] = np.repeat(values["top_ns"] + before, sizes) - spent
        bits = np.unpackbits(values["doubtful"], count=spent.size)
        values["doubtful"] = bits.astype(bool)
        values["member"] = np.full(sizes.size, -1, dtype=np.int64)
        segments = values["member_segment"]
        values["member"][segments] = np.arange(segments.size)
        values["member_end_ns"] = values["top_ns"][segments]
        values["begin_ns"][values.pop("open")] = OPEN_NS
        vars(self).update(values)


def _long_apart(lengths: IntArray) -> tuple[npt.NDArray[Any], IntArray, IntArray]:
    """Return lengths in one or two bytes, 0 where they do not fit, which do not, and these."""
    ways = []
    for kind in (np.uint8, np.uint16):
        at = np.flatnonzero(lengths > np.iinfo(kind).max)
        short = lengths.astype(kind)
        short[at] = 0
        # One that does not fit takes its place and its length, 4 bytes each.
        ways.append((short.nbytes + 8 * at.size, short, at))
    _, short, at = min(ways, key=lambda way: way[0])
    return short, at, lengths[at]


def _shortened(value: Any) -> Any:
    """Return integers in the shortest type that holds them; all else as it is."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "i" or not value.size:
        return value
    least, most = int(value.min()), int(value.max())
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return value.astype(kind)
    return value


def path_forest(
    outline: Outline, blocks: Blocks, whole: Bools, charging: Sequence[Charging]
) -> PathForest:
    """Return the paths of a rank as they travel, and add up what walks charge on the way.

    Args:
        outline: Its segments.
        blocks: Their stretches.
        whole: Shape (segments,), which keep their stretches.
        charging: Sums of walks, changed in place.
    """
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
        member_segment=outline.member_segment,
        member_start_ns=outline.member_start_ns,
        member_end_ns=outline.member_end_ns,
        member_device=outline.member_device,
        member_step=outline.member_step,
    )
