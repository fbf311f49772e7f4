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
from nsys_llm.numeric.distributions import MEDIAN, ValueCounts, interpolate
from nsys_llm.numeric.grouping import coded, distinct_codes, exact_sums, joined, positions, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.trace.device_ops import DeviceOps, OpNames
from nsys_llm.trace.identity import Rank

from ..partials import MICRO_GAP_NS, RankPatterns

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
    named, place = coded([_key(pair) for pair in patterns.pairs])
    return patterns, ByKey(named, counts=ValueCounts.merge(counts).regrouped(place))


def pattern_columns(
    parts: Sequence[tuple[Rank, RankPatterns]], lengths: ByKey, top: int
) -> Columns:
    """Return the table patterns: those with most time over all ranks, then all others in a row."""
    pairs = sorted({pair for _, part in parts for pair in part.pairs})
    gaps_n, total_ns, ranks_n = (np.zeros(len(pairs), dtype=np.int64) for _ in range(3))
    cause_ns = np.zeros((len(pairs), _CAUSES_N), dtype=np.int64)
    for _, part in parts:
        codes = positions(part.pairs, pairs)
        gaps_n[codes] += part.gaps_n
        total_ns[codes] += part.total_ns
        cause_ns[codes] += part.cause_ns
        ranks_n[codes] += 1
    order = np.argsort(-total_ns, kind="stable")
    shown, rest = order[:top], order[top:]
    median, most = _medians(lengths, [pairs[index] for index in shown.tolist()])
    others_n = sum(part.others_n for _, part in parts) + int(gaps_n[rest].sum())
    others_ns = sum(part.others_ns for _, part in parts) + int(total_ns[rest].sum())
    worst = cause_ns[shown].argmax(axis=1) if shown.size else shown
    tail = [None] if others_n else []
    return {
        "before": [*(pairs[index][0] for index in shown.tolist()), *tail],
        "after": [*(pairs[index][1] for index in shown.tolist()), *tail],
        "ranks_n": [*ranks_n[shown].tolist(), *tail],
        "gaps_n": [*gaps_n[shown].tolist(), *([others_n] if others_n else [])],
        "total_ns": [*total_ns[shown].tolist(), *([others_ns] if others_n else [])],
        "p50_ns": [*median, *tail],
        "max_ns": [*most, *tail],
        "cause": [*(CAUSE_NAMES[cause] for cause in worst.tolist()), *tail],
        "cause_ns": [*cause_ns[shown, worst].tolist(), *tail],
    }


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


def _key(pair: tuple[str, str]) -> str:
    return _BETWEEN.join(pair)


def _medians(lengths: ByKey, pairs: Sequence[tuple[str, str]]) -> tuple[list[float], list[int]]:
    rows = positions(map(_key, pairs), lengths.keys)
    spread = lengths.counts.spread(len(lengths.keys)).take(rows)
    return interpolate(spread.order)[:, MEDIAN].tolist(), spread.moments.maximum.tolist()
