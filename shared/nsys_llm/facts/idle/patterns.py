"""Short gaps that come again and again between the same two operations: what a decode step loses.

A rank keeps its costliest patterns and adds the others up, so that all sums stay exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import coded, distinct_codes, exact_sums, joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.trace.device_ops import DeviceOps, OpNames

#: Longer gaps are listed one by one. What a host takes to launch one operation is far below.
MICRO_GAP_NS: Final = 100_000


@dataclass(frozen=True)
class RankPatterns:
    """Patterns of one rank, those with most time first.

    Attributes:
        pairs: Names of the operations before and after.
        gaps_n: Shape (patterns,).
        total_ns: Likewise, lengths of the gaps together.
        cause_ns: Shape (patterns, causes), the same by the cause that a gap is named after.
        others_n: Short gaps of patterns that were left out.
    """

    pairs: tuple[tuple[str, str], ...]
    gaps_n: IntArray
    total_ns: IntArray
    cause_ns: IntArray
    others_n: int
    others_ns: int


#: Patterns that a rank keeps: several times what a table shows.
PATTERNS_KEPT: Final = 256

_CAUSES_N: Final = len(CAUSE_NAMES)
#: Between two names in a key; neither can hold it.
_BETWEEN: Final = "\x1f"

#: Operations of each device, and the cause that each of its gaps is named after.
_Devices = Sequence[tuple[DeviceOps, np.ndarray[Any, Any]]]


def map_patterns(devices: _Devices, names: OpNames) -> tuple[RankPatterns, ByKey]:
    """Return the patterns of one rank, and how often a gap of each had which length."""
    names_n = max(len(names.texts), 1)
    short = list(_short(devices, names_n))
    keys, code = distinct_codes(joined([block.keys for block in short]))
    total = summed(code, joined([block.total_ns for block in short]), keys.size)
    # Of equal ones, the first by name: kernels' names are sorted, and codes follow them.
    kept = np.argsort(-total, kind="stable")[:PATTERNS_KEPT]
    place = np.full(len(keys), -1, dtype=np.int64)
    place[kept] = np.arange(kept.size)
    gaps_n, cause_ns = np.zeros(kept.size, np.int64), np.zeros(kept.size * _CAUSES_N, np.int64)
    others_n = others_ns = 0
    counts = []
    for block in short:
        at = place[np.searchsorted(keys, block.keys)][block.code]
        inside = at >= 0
        others_n += int((~inside).sum())
        others_ns += int(block.length[~inside].sum())
        at, length, cause = at[inside], block.length[inside].astype(np.int64), block.cause[inside]
        gaps_n += np.bincount(at, minlength=kept.size)
        cause_ns += exact_sums(at * _CAUSES_N + cause, length, cause_ns.size)
        counts.append(ValueCounts.from_values(at, length))
    pairs = [divmod(key, names_n) for key in keys[kept].tolist()]
    patterns = RankPatterns(
        pairs=tuple((names.texts[before], names.texts[after]) for before, after in pairs),
        gaps_n=gaps_n,
        total_ns=total[kept],
        cause_ns=cause_ns.reshape(-1, _CAUSES_N),
        others_n=others_n,
        others_ns=others_ns,
    )
    named, place = coded([pattern_key(pair) for pair in patterns.pairs])
    return patterns, ByKey(named, counts=ValueCounts.merge(counts).regrouped(place))


@dataclass(frozen=True)
class _Short:
    """Short gaps between two operations, some at a time; as narrow as they may be.

    Attributes:
        keys: The pairs of names around them, each once, sorted.
        total_ns: Shape (keys,), the time of each.
        code: Shape (gaps,), the pair of each.
        length: Shape (gaps,), ns.
        cause: Shape (gaps,).
    """

    keys: IntArray
    total_ns: IntArray
    code: npt.NDArray[np.int32]
    length: npt.NDArray[np.int32]
    cause: npt.NDArray[np.int8]


def _short(devices: _Devices, names_n: int) -> Iterator[_Short]:
    for ops, named in devices:
        for block in blocks(len(ops.gaps)):
            gaps = ops.gaps.take(block)
            length = gaps.end_ns - gaps.start_ns
            rows = np.flatnonzero((length < MICRO_GAP_NS) & (gaps.before >= 0) & (gaps.after >= 0))
            before, after = ops.name[gaps.before[rows]], ops.name[gaps.after[rows]]
            keys, code = distinct_codes(before.astype(np.int64) * names_n + after)
            total_ns = exact_sums(code, length[rows], keys.size)
            yield _Short(
                keys,
                total_ns,
                code.astype(np.int32),
                length[rows].astype(np.int32),
                named[block][rows],
            )


def pattern_key(pair: tuple[str, str]) -> str:
    """Return the key of a pair of operations among the lengths of gaps."""
    return _BETWEEN.join(pair)
