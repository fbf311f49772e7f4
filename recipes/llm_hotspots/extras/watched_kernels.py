"""Watched kernels: launches of the kernels that `--kernel PATTERN` names, over time.

A bounded number a rank is kept, evenly over their order in time and with the first and the last, so
that a change in the middle of a run shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nsys_llm.core.patterns import parse_pattern
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, nullable, rank_columns
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.kernel_launches import GEOMETRY
from nsys_llm.trace.rank_trace import RankTrace

#: Columns of a launch that the profile has.
_RECORDED: Final = (
    "device_id",
    "stream_id",
    "start_ns",
    "registers_per_thread",
    *GEOMETRY,
    "dynamic_shared_bytes",
)


@dataclass(frozen=True)
class RankWatchedKernels:
    """The chosen kernels on one rank.

    Attributes:
        launches_n: How many launches start in the windows.
        launches: Those kept, in order of time, by column: those of `_RECORDED`, `duration_ns`,
            `graph_node` (0 or 1) and `launch`, the position among all of the rank. Shape (kept,);
            NULL_INT for what is not recorded.
    """

    names: tuple[str, ...] = ()
    launches_n: int = 0
    launches: Mapping[str, IntArray] = field(default_factory=dict)


def map_watched_kernels(
    trace: RankTrace,
    options: Mapping[str, Any],
    pairs: Sequence[tuple[str, str]],
    source: IntArray,
) -> RankWatchedKernels:
    """Keep launches of the chosen kernels of one rank.

    Args:
        options: kernel is the pattern, top how many launches to keep.
        source: Shape (kernels,), each kernel's position in `pairs`.
    """
    if not options.get("kernel"):
        return RankWatchedKernels()
    pattern = parse_pattern(options["kernel"])
    chosen = np.array([pattern.matches(*pair) for pair in pairs], dtype=bool)
    if not chosen.any():
        return RankWatchedKernels()
    rows = np.flatnonzero(chosen[source])
    rows = rows[trace.starts_inside(trace.tables["kernels"].take(rows))]
    kernels = trace.tables["kernels"].take(rows)
    order = np.lexsort([kernels[name] for name in ("stream_id", "device_id", "end_ns", "start_ns")])
    place = _evenly(order.size, options["top"])
    kept = kernels.take(order[place])
    return RankWatchedKernels(
        names=tuple(pairs[code][0] for code in source[rows[order[place]]].tolist()),
        launches_n=len(kernels),
        launches={
            **{name: kept[name] for name in _RECORDED},
            "duration_ns": kept["end_ns"] - kept["start_ns"],
            "graph_node": is_graph_node(kept).astype(np.int64),
            "launch": place,
        },
    )


def watched_kernel_columns(parts: Sequence[tuple[Rank, RankWatchedKernels]]) -> Columns:
    """Return the table watched_kernels."""
    parts = [(rank, watched) for rank, watched in parts if watched.names]

    def column(name: str) -> IntArray:
        return joined([watched.launches[name] for _, watched in parts])

    shown_n = [len(watched.names) for _, watched in parts]
    launches_n = np.array([watched.launches_n for _, watched in parts], dtype=np.int64)
    return {
        **rank_columns([(rank, n) for (rank, _), n in zip(parts, shown_n, strict=True)]),
        "launches_n": np.repeat(launches_n, shown_n),
        "launch": column("launch"),
        **{name: nullable(column(name)) for name in (*_RECORDED, "duration_ns")},
        "name": [name for _, watched in parts for name in watched.names],
        "graph_node": column("graph_node").astype(bool),
    }


def _evenly(rows_n: int, most: int) -> IntArray:
    """Return at most `most` positions, evenly spread, the first and the last among them."""
    if rows_n <= most:
        return np.arange(rows_n, dtype=np.int64)
    if most == 1:
        return np.zeros(1, dtype=np.int64)
    return np.arange(most, dtype=np.int64) * (rows_n - 1) // (most - 1)
