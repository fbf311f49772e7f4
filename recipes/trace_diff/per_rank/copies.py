"""Copies and fills of one rank, by kind and by what the step around them does."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nsys_llm.numeric.grouping import distinct_codes, exact_sums, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.device_ops import LARGEST_SIZE_BYTES, memop_table
from nsys_llm.trace.rank_trace import RankTrace

from .sparse import SparseSums, none

#: Tables of operations that move data, in the order of `memop_table`.
MOVE_TABLES = ("memcpys", "memsets")
_BLOCKS = "sync_memop"


@dataclass(frozen=True)
class MoveSums:
    """Copies and fills of one rank by kind; arrays of shape (kinds,).

    Attributes:
        kind: Packed code, see `nsys_llm.taxonomy.cuda_codes.MoveKind`.
        moves_n: Operations that start in the window.
        total_ns: Time in them inside the window.
        size_bytes: What the first of these move, as far as sizes are recorded.
    """

    kind: IntArray = field(default_factory=none)
    moves_n: IntArray = field(default_factory=none)
    total_ns: IntArray = field(default_factory=none)
    size_bytes: IntArray = field(default_factory=none)


@dataclass(frozen=True)
class CopySums:
    """Copies and fills of the full steps, by work and kind.

    Attributes:
        kinds: Packed code, and whether the call that made it returns only when it is done.
        moves_n: How many; column: position in `kinds`.
        total_ns: How long they ran.
        size_bytes: What they move.
    """

    kinds: tuple[tuple[int, bool], ...] = ()
    moves_n: SparseSums = field(default_factory=SparseSums)
    total_ns: SparseSums = field(default_factory=SparseSums)
    size_bytes: SparseSums = field(default_factory=SparseSums)


@dataclass(frozen=True)
class RankMoves:
    """The copies and fills of a rank as `memop_table` has them; arrays of shape (moves,).

    Attributes:
        kinds: See `CopySums`.
        kind: Position in `kinds`.
        took_ns: How long each ran.
        size_bytes: What it moved; 0 where that is not recorded.
    """

    kinds: tuple[tuple[int, bool], ...]
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
        size = moves["size_bytes"]
        known = (size >= 0) & (size < LARGEST_SIZE_BYTES)
        kinds = tuple((code >> 1, bool(code & 1)) for code in codes.tolist())
        took_ns = moves["end_ns"] - moves["start_ns"]
        return cls(kinds, kind, took_ns, np.where(known, size, 0))

    def sums(self, work: IntArray, works_n: int) -> CopySums:
        """Add up by work, shape (moves,), -1 for none."""
        shape, kinds_n = (works_n, len(self.kinds)), len(self.kinds)
        if not kinds_n:
            return CopySums()
        inside = work >= 0
        code = (work * kinds_n + self.kind)[inside]
        counts = np.bincount(code, minlength=works_n * kinds_n).astype(np.int64)
        took_ns, size = (
            exact_sums(code, values[inside], works_n * kinds_n).reshape(shape)
            for values in (self.took_ns, self.size_bytes)
        )
        return CopySums(
            self.kinds,
            SparseSums.of(counts.reshape(shape)),
            SparseSums.of(took_ns),
            SparseSums.of(size),
        )


def move_sums(trace: RankTrace) -> MoveSums:
    """Return all copies and fills of a rank, by kind."""
    moves = memop_table(trace)
    inside = trace.starts_inside(moves)
    known = inside & (moves["size_bytes"] >= 0) & (moves["size_bytes"] < LARGEST_SIZE_BYTES)
    kinds, kind = distinct_codes(moves["kind"])
    return MoveSums(
        kind=kinds,
        moves_n=np.bincount(kind[inside], minlength=kinds.size).astype(np.int64),
        total_ns=summed(kind, trace.clipped_ns(moves), kinds.size),
        size_bytes=summed(kind[known], moves["size_bytes"][known], kinds.size),
    )
