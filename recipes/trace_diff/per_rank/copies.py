"""Copies and fills of one rank, by kind, of all of its window and of its full steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.numeric.grouping import distinct_codes, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.device_ops import LARGEST_SIZE_BYTES, memop_table
from nsys_llm.trace.rank_trace import RankTrace

from .work_sums import WorkSums

#: Tables of operations that move data, in the order of `memop_table`.
MOVE_TABLES = ("memcpys", "memsets")
_BLOCKS = "sync_memop"

#: Packed code (see `nsys_llm.taxonomy.cuda_codes.MoveKind`), and whether the call that made the
#: copy returns only when it is done.
CopyKind = tuple[int, bool]
#: By packed code: operations that start in the window, time in them inside the window in ns, and
#: bytes of the first as far as sizes are recorded.
MoveSums = dict[int, tuple[int, int, int]]


@dataclass(frozen=True)
class RankMoves:
    """The copies and fills of a rank as `memop_table` has them; arrays of shape (moves,).

    Attributes:
        kinds: Distinct ones.
        kind: Position in `kinds`.
        took_ns: How long each ran.
        size_bytes: What it moved; 0 where that is not recorded.
    """

    kinds: tuple[CopyKind, ...]
    kind: IntArray
    took_ns: IntArray
    size_bytes: IntArray

    @classmethod
    def of(cls, trace: RankTrace) -> RankMoves:
        """Read the copies and fills that the filters leave."""
        moves, calls = memop_table(trace), trace.tables.get("api_calls")
        row, blocks = moves["launch_row"], np.zeros(len(moves), dtype=np.int64)
        if calls is not None and len(calls):
            ids, name = distinct_codes(calls["name_id"][np.maximum(row, 0)])
            names = [text_of(key, trace.strings) for key in ids.tolist()]
            of_name = np.array([classify_api(text) == _BLOCKS for text in names], dtype=np.int64)
            blocks = np.where(row >= 0, of_name[name], 0) if names else blocks
        codes, kind = distinct_codes(2 * moves["kind"] + blocks)
        kinds = tuple((code >> 1, bool(code & 1)) for code in codes.tolist())
        return cls(kinds, kind, moves["end_ns"] - moves["start_ns"], _sizes(moves["size_bytes"]))

    def sums(self, work: IntArray) -> WorkSums:
        """Return number, ns and bytes by the work of a step, shape (moves,), -1 for none."""
        return WorkSums.counted(work, self.kind, len(self.kinds), (self.took_ns, self.size_bytes))


def move_sums(trace: RankTrace) -> MoveSums:
    """Return all copies and fills of a rank, by kind."""
    moves = memop_table(trace)
    inside = trace.starts_inside(moves)
    kinds, kind = distinct_codes(moves["kind"])
    columns = (
        np.bincount(kind[inside], minlength=kinds.size).astype(np.int64),
        summed(kind, trace.clipped_ns(moves), kinds.size),
        summed(kind[inside], _sizes(moves["size_bytes"])[inside], kinds.size),
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(kinds.tolist(), rows, strict=True))


def _sizes(size_bytes: IntArray) -> IntArray:
    """Return sizes, 0 for what is none."""
    return np.where((size_bytes >= 0) & (size_bytes < LARGEST_SIZE_BYTES), size_bytes, 0)
