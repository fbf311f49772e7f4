"""Kernels, copies and fills of one rank, by what they launch or move, and their sums by work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.grouping import distinct_codes, distinct_rows, exact_sums, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.coded_names import coded_names, text_of
from nsys_llm.trace.device_ops import LARGEST_SIZE_BYTES, memop_table, shown_name_ids
from nsys_llm.trace.kernel_launches import GEOMETRY
from nsys_llm.trace.rank_trace import RankTrace


def none() -> IntArray:
    """Return no value, shape (0,)."""
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class WorkSums:
    """Sums by work and by a second code; int64, in order of both.

    Attributes:
        work: Shape (n,), position in `StepWalls.works`.
        key: Shape (n,), the second code.
        sums: Shape (n, columns), of which not all are 0.
    """

    work: IntArray = field(default_factory=none)
    key: IntArray = field(default_factory=none)
    sums: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))

    @classmethod
    def counted(
        cls, work: IntArray, key: IntArray, keys_n: int, columns: Sequence[IntArray]
    ) -> WorkSums:
        """Count operations, and add up what else is known of them.

        Args:
            work: Shape (operations,), -1 for those of no step.
            key: Shape (operations,), below `keys_n`.
            columns: Each of shape (operations,).
        """
        works_n = int(work.max(initial=-1)) + 1
        code = (work * keys_n + key)[work >= 0]
        sums = [exact_sums(code, column[work >= 0], works_n * keys_n) for column in columns]
        counts = np.bincount(code, minlength=works_n * keys_n).astype(np.int64)
        return cls.of(np.stack([counts, *sums], axis=1).reshape(works_n, keys_n, len(columns) + 1))

    @classmethod
    def of(cls, table: IntArray) -> WorkSums:
        """Return what is not 0 in an array of shape (works, keys, columns)."""
        work, key = np.nonzero(table.any(axis=2))
        return cls(work.astype(np.int64), key.astype(np.int64), table[work, key])


#: Columns of a launch configuration.
CONFIG: Final = (
    *GEOMETRY,
    "registers_per_thread",
    "static_shared_bytes",
    "dynamic_shared_bytes",
)

#: Grid and block, a launch's size, are the first of them.
GEOMETRY_N: Final = len(GEOMETRY)

#: Shown name, demangled name, and the values of `CONFIG`; NULL_INT for what the report lacks.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class LaunchKeys:
    """Kernels of one rank.

    Attributes:
        keys: Distinct keys, sorted.
        key: Shape (kernels,), position in `keys`.
    """

    keys: tuple[Key, ...]
    key: IntArray

    def communicates(self) -> npt.NDArray[np.bool_]:
        """Tell which kernels are communication, shape (kernels,); demangled names decide."""
        reported = [is_communication(key[1]) for key in self.keys]
        return np.array(reported, dtype=bool)[self.key] if reported else np.zeros(0, dtype=bool)


def coded_launches(
    kernels: Table, strings: Mapping[int, str], options: Mapping[str, Any]
) -> LaunchKeys:
    """Return what each kernel of a rank launches; the options base and mangled choose the names."""
    full, full_code = coded_names(kernels["demangled_name_id"], strings)
    shown, shown_code = coded_names(shown_name_ids(kernels, options), strings)
    columns = [shown_code, full_code, *(kernels[column] for column in CONFIG)]
    first, key = distinct_rows(columns)
    values = zip(*(column[first].tolist() for column in columns), strict=True)
    return LaunchKeys(tuple((shown[i], full[k], *rest) for i, k, *rest in values), key)


def config_text(config: tuple[int, ...]) -> str:
    """Return a configuration as people write it: `132x1x1 / 384x1x1 / 168 regs / 1024 B`.

    Shared memory, static and dynamic, is left out where there is none.
    """
    sizes = ["?" if value == NULL_INT else str(value) for value in config]
    static, dynamic = ("0" if size == "?" else size for size in sizes[7:9])
    shared = "" if static == dynamic == "0" else f" / {static} + {dynamic} B"
    return f"{'x'.join(sizes[:3])} / {'x'.join(sizes[3:6])} / {sizes[6]} regs{shared}"


#: Tables of operations that move data, in the order of `memop_table`.
MOVE_TABLES = ("memcpys", "memsets")
_BLOCKS = "sync_memop"

#: Packed code (see `nsys_llm.taxonomy.cuda_codes.MoveKind`), and whether the call that made the
#: copy returns only when it is done.
CopyKind = tuple[int, bool]


def coded_moves(trace: RankTrace) -> tuple[tuple[CopyKind, ...], IntArray, tuple[IntArray, ...]]:
    """Return the kinds of copies and fills that the filters leave, as `memop_table` has them.

    Returns:
        The kinds, of each copy its position among them, and how long it ran in ns and what it
        moved in bytes (0 where that is not recorded), each of shape (moves,).
    """
    moves, calls = memop_table(trace), trace.tables.get("api_calls")
    row, blocks = moves["launch_row"], np.zeros(len(moves), dtype=np.int64)
    if calls is not None and len(calls):
        ids, name = distinct_codes(calls["name_id"][np.maximum(row, 0)])
        names = [text_of(key, trace.strings) for key in ids.tolist()]
        of_name = np.array([classify_api(text) == _BLOCKS for text in names], dtype=np.int64)
        blocks = np.where(row >= 0, of_name[name], 0) if names else blocks
    codes, kind = distinct_codes(2 * moves["kind"] + blocks)
    kinds = tuple((code >> 1, bool(code & 1)) for code in codes.tolist())
    return kinds, kind, (moves["end_ns"] - moves["start_ns"], _sizes(moves["size_bytes"]))


def move_sums(trace: RankTrace) -> ByKey:
    """Return all copies and fills of a rank, by kind."""
    moves = memop_table(trace)
    inside = trace.starts_inside(moves)
    kinds, kind = distinct_codes(moves["kind"])
    sums = {
        "moves_n": np.bincount(kind[inside], minlength=kinds.size).astype(np.int64),
        "total_ns": summed(kind, trace.clipped_ns(moves), kinds.size),
        "size_bytes": summed(kind[inside], _sizes(moves["size_bytes"])[inside], kinds.size),
    }
    return ByKey(tuple(kinds.tolist()), sums)


def _sizes(size_bytes: IntArray) -> IntArray:
    """Return sizes, 0 for what is none."""
    return np.where((size_bytes >= 0) & (size_bytes < LARGEST_SIZE_BYTES), size_bytes, 0)
