"""Gaps one by one, and short ones by the operations around them: `gaps` and `patterns`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nsys_llm.facts.idle.gap_rows import GapRow
from nsys_llm.facts.idle.patterns import RankPatterns, pattern_key
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import MEDIAN, interpolate
from nsys_llm.numeric.grouping import positions
from nsys_llm.report.columns import Columns, record_columns
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, IDLE_CAUSES_N
from nsys_llm.trace.identity import Rank

#: What of a gap is no column by itself.
_PARTS: Final = ("cause_code", "time_ns", "global_tid")


def gap_columns(rows: Sequence[tuple[Rank, GapRow]]) -> Columns:
    """Return the table gaps."""
    plain = [name for name in GapRow.__dataclass_fields__ if name not in _PARTS]
    gaps = [gap for _, gap in rows]
    return {
        **record_columns(rows, *plain, "duration_ns", "tid"),
        "idle_ns": [sum(gap.time_ns[:IDLE_CAUSES_N]) for gap in gaps],
        "cause": [CAUSE_NAMES[gap.cause_code] for gap in gaps],
        "cause_ns": [gap.time_ns[gap.cause_code] for gap in gaps],
        **{
            f"{name}_ns": [gap.time_ns[code] for gap in gaps]
            for code, name in enumerate(CAUSE_NAMES)
        },
    }


def pattern_columns(
    parts: Sequence[tuple[Rank, RankPatterns]], lengths: ByKey, top: int
) -> Columns:
    """Return the table patterns: those with most time over all ranks, then all others in a row."""
    pairs = sorted({pair for _, part in parts for pair in part.pairs})
    gaps_n, total_ns, ranks_n = (np.zeros(len(pairs), dtype=np.int64) for _ in range(3))
    cause_ns = np.zeros((len(pairs), len(CAUSE_NAMES)), dtype=np.int64)
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


def _medians(lengths: ByKey, pairs: Sequence[tuple[str, str]]) -> tuple[list[float], list[int]]:
    rows = positions(map(pattern_key, pairs), lengths.keys)
    spread = lengths.counts.spread(len(lengths.keys)).take(rows)
    return interpolate(spread.order)[:, MEDIAN].tolist(), spread.moments.maximum.tolist()
