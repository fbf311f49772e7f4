"""Copies and fills that keep the host thread waiting, by the rules of NVIDIA's `nsys analyze`.

Source of the rules: cuda_memcpy_async, cuda_memcpy_sync and cuda_memset_sync of Nsight Systems
2023.4.4. Two differences: the API call is looked for in the operation's own process, and functions
of the driver API count like those of the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.grouping import distinct_codes, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import MANAGED, MEMORY_KINDS, PINNED, MoveKind
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.rank_trace import RankTrace

#: The rules by the names that `nsys analyze` knows them by.
RULES: Final = ("cuda_memcpy_async", "cuda_memcpy_sync", "cuda_memset_sync")

#: A synchronous copy to the device returns at once up to this size (cuda_memcpy_sync).
_STAGED_BYTES: Final = 64_000

#: Fills of these kinds of memory block the host (cuda_memset_sync).
_BLOCKING_FILLS: Final = (MEMORY_KINDS[PINNED], MEMORY_KINDS[MANAGED])


@dataclass(frozen=True)
class BlockingRows:
    """What a rule of `RULES` found, by device, rule, API function and kind; shape (rows,) each.

    Attributes:
        rule: One of `RULES`, a row each.
        api: Names without version, one a row.
        kind: Packed code, see `nsys_llm.taxonomy.cuda_codes.MoveKind`.
        ops_n: Operations that start in the windows.
        size_bytes: Their bytes.
        start_ns: Start of the longest of them, the earliest of equals.
    """

    device_id: IntArray
    rule: tuple[str, ...]
    api: tuple[str, ...]
    kind: IntArray
    ops_n: IntArray
    size_bytes: IntArray
    total_ns: IntArray
    start_ns: IntArray
    end_ns: IntArray


def blocking_rows(moves: Table, trace: RankTrace) -> BlockingRows:
    """Find the copies and fills that block.

    Args:
        moves: Those that start in the windows, see `memop_table`, sizes known.
    """
    known = moves.take(moves["launch_row"] >= 0)
    names, call = _call_names(trace, known["launch_row"])
    rule = _rules(known, call, names)
    blocking, call, rule = known.take(rule >= 0), call[rule >= 0], rule[rule >= 0]
    devices, device = distinct_codes(blocking["device_id"])
    kinds, kind = distinct_codes(blocking["kind"])
    sizes = (len(devices), len(RULES), max(len(names), 1), len(kinds))
    used, group = distinct_codes(np.ravel_multi_index((device, rule, call, kind), sizes))
    device_of, rule_of, call_of, kind_of = (
        np.unravel_index(used, sizes) if used.size else [used] * 4
    )
    duration_ns = blocking["end_ns"] - blocking["start_ns"]
    # Of each group the longest, then the earliest, stands first.
    order = np.lexsort((blocking["start_ns"], -duration_ns, group))
    first = order[np.searchsorted(group[order], np.arange(used.size))]
    return BlockingRows(
        device_id=devices[device_of],
        rule=tuple(RULES[value] for value in rule_of.tolist()),
        api=tuple(names[value] for value in call_of.tolist()),
        kind=kinds[kind_of],
        ops_n=np.bincount(group, minlength=used.size).astype(np.int64),
        size_bytes=summed(group, blocking["size_bytes"], used.size),
        total_ns=summed(group, duration_ns, used.size),
        start_ns=blocking["start_ns"][first],
        end_ns=blocking["end_ns"][first],
    )


def _call_names(trace: RankTrace, launch_row: IntArray) -> tuple[list[str], IntArray]:
    """Return the distinct names of API calls, sorted, and each call's position among them."""
    ids, code = distinct_codes(trace.tables["api_calls"]["name_id"][launch_row])
    texts = [strip_api_version(trace.strings.get(value, "")) for value in ids.tolist()]
    names = sorted(set(texts))  # several versions of a function are one
    return names, np.array([names.index(text) for text in texts], dtype=np.int64)[code]


def _rules(moves: Table, call: IntArray, names: list[str]) -> IntArray:
    """Return the position of each operation's rule in `RULES`, or -1."""
    folded = [name.lower() for name in names]
    # NVIDIA compares without regard to case, too.
    copies = _each([name.startswith(("cudamemcpy", "cumemcpy")) for name in folded], call)
    fills = _each([name.startswith(("cudamemset", "cumemset")) for name in folded], call)
    later = _each(["async" in name for name in folded], call)
    kinds, kind = distinct_codes(moves["kind"])
    moved = [MoveKind.of(kind) for kind in kinds.tolist()]
    pageable = _each([item.pageable is True for item in moved], kind)
    staged = _each([item.kind == "HtoD" for item in moved], kind)
    staged &= moves["size_bytes"] <= _STAGED_BYTES
    hosts = _each(
        [item.kind == "memset" and item.target in _BLOCKING_FILLS for item in moved], kind
    )
    copied = _each([item.kind != "memset" for item in moved], kind)
    return np.select(
        [
            copied & copies & later & pageable,
            copied & copies & ~later & ~staged & (moves["same_device"] == 0),
            fills & ~later & hosts,
        ],
        [0, 1, 2],
        default=-1,
    )


def _each(reported: list[bool], code: IntArray) -> npt.NDArray[np.bool_]:
    return np.array(reported, dtype=bool)[code]
