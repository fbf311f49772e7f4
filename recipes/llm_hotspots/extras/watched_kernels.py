"""Watched kernels: every launch of the kernels that `--kernel PATTERN` names, and how they launch.

Method. The configuration of a launch is its grid, block and dynamic shared memory. Durations are
counted by kernel and configuration, so percentiles over ranks are exact. Of the launches themselves
a bounded number a rank is kept, evenly over their order in time and with the first and the last, so
that a change in the middle of a run shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.core.patterns import parse_pattern
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.grouping import joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.longest import longest_starts
from nsys_llm.profile.tables import Table
from nsys_llm.report.columns import (
    Columns,
    nullable,
    percent,
    rank_columns,
    sorted_columns,
    spread_columns,
)
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_trace import RankTrace

#: Columns of a configuration, in the tables' order.
_SHAPE: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
CONFIG: Final = (*_SHAPE, "dynamic_shared_bytes")
#: Columns of a launch that the configuration does not hold.
_LAUNCH: Final = ("device_id", "stream_id", "start_ns", "duration_ns", "registers_per_thread")


@dataclass(frozen=True)
class RankWatchedKernels:
    """The chosen kernels on one rank.

    Attributes:
        keys: Name and configuration (see `CONFIG`), sorted; NULL_INT for what is not recorded.
        durations: Of launches that start in the windows, by position in `keys`.
        total_ns: Shape (keys,), time inside the windows.
        first_ns: Shape (keys,), first start in the windows; NULL_INT without one.
        last_ns: Likewise, the last.
        longest_ns: Likewise, start of the longest launch, the first of equals.
        launches: The launches kept, in order of time, by column: those of `_LAUNCH`, `key`,
            `graph_node` (0 or 1) and `launch`, the position among all of the rank.
    """

    keys: tuple[tuple[Any, ...], ...] = ()
    durations: ValueCounts = field(default_factory=ValueCounts.empty)
    total_ns: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    first_ns: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    last_ns: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    longest_ns: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    launches: Mapping[str, IntArray] = field(default_factory=dict)

    @property
    def launches_n(self) -> int:
        """How many launches start in the windows."""
        return int(self.durations.count.sum())


_RankParts = Sequence[tuple[Rank, RankWatchedKernels]]


def map_watched_kernels(
    trace: RankTrace,
    options: Mapping[str, Any],
    pairs: Sequence[tuple[str, str]],
    source: IntArray,
) -> RankWatchedKernels:
    """Reduce the launches of the chosen kernels of one rank.

    Args:
        options: kernel is the pattern, top how many launches to keep.
        pairs: Shown and demangled names.
        source: Shape (kernels,), each kernel's position in `pairs`.
    """
    if not options.get("kernel"):
        return RankWatchedKernels()
    pattern = parse_pattern(options["kernel"])
    chosen = np.array([pattern.matches(*pair) for pair in pairs], dtype=bool)
    if not chosen.any():
        return RankWatchedKernels()
    rows = np.flatnonzero(chosen[source])
    kernels = trace.tables["kernels"].take(rows)
    keys, key = _keyed(kernels, pairs, source[rows])
    inside = np.flatnonzero(trace.starts_inside(kernels))
    starts, durations = kernels["start_ns"][inside], (kernels["end_ns"] - kernels["start_ns"])
    durations = durations[inside]
    whole = kernels.take(inside)
    order = np.lexsort((whole["stream_id"], whole["device_id"], whole["end_ns"], starts))
    kept = order[_evenly(order.size, options["top"])]
    launches = {name: whole[name][kept] for name in _LAUNCH if name in whole}
    launches |= {"duration_ns": durations[kept], "key": key[inside][kept]}
    launches["graph_node"] = is_graph_node(whole, kept).astype(np.int64)
    launches["launch"] = _evenly(order.size, options["top"])
    first_ns, last_ns = _extremes(key[inside], starts, len(keys))
    counts = ValueCounts.from_values(key[inside], durations)
    longest_ns = counts.moments(len(keys)).maximum
    every = np.ones(inside.size, dtype=bool)
    return RankWatchedKernels(
        keys=keys,
        durations=counts,
        total_ns=summed(key, trace.clipped_ns(kernels), len(keys)),
        first_ns=first_ns,
        last_ns=last_ns,
        longest_ns=longest_starts(key[inside], starts, durations, every, longest_ns),
        launches=launches,
    )


def watched_kernel_tables(parts: _RankParts) -> dict[str, Columns]:
    """Return the tables watched_kernels, watched_kernel_configs and rank_watched_kernel_configs."""
    parts = [(rank, watched) for rank, watched in parts if watched.keys]
    return {
        "watched_kernels": _launch_rows(parts),
        "watched_kernel_configs": _over_all_ranks(parts),
        "rank_watched_kernel_configs": _per_rank(parts),
    }


def _keyed(
    kernels: Table, pairs: Sequence[tuple[str, str]], source: IntArray
) -> tuple[tuple[tuple[Any, ...], ...], IntArray]:
    """Return the distinct (shown name, configuration), sorted, and each kernel's position."""
    shown = sorted({pairs[code][0] for code in np.unique(source).tolist()})
    place = {name: index for index, name in enumerate(shown)}
    names = np.array([place.get(name, -1) for name, _ in pairs], dtype=np.int64)[source]
    columns = [names, *(kernels[name] for name in CONFIG)]
    order = np.lexsort(columns[::-1])
    new = np.zeros(order.size, dtype=bool)
    for column in columns:
        new[1:] |= np.diff(column[order]) != 0
    new[:1] = True
    key = np.empty(order.size, dtype=np.int64)
    key[order] = np.cumsum(new) - 1
    first = order[new]
    values = zip(*(column[first].tolist() for column in columns), strict=True)
    return tuple((shown[name], *config) for name, *config in values), key


def _evenly(rows_n: int, most: int) -> IntArray:
    """Return at most `most` positions, evenly spread, the first and the last among them."""
    if rows_n <= most:
        return np.arange(rows_n, dtype=np.int64)
    if most == 1:
        return np.zeros(1, dtype=np.int64)
    return np.arange(most, dtype=np.int64) * (rows_n - 1) // (most - 1)


def _extremes(key: IntArray, starts: IntArray, keys_n: int) -> tuple[IntArray, IntArray]:
    first = np.full(keys_n, np.iinfo(np.int64).max, dtype=np.int64)
    last = np.full(keys_n, NULL_INT, dtype=np.int64)
    np.minimum.at(first, key, starts)
    np.maximum.at(last, key, starts)
    return np.where(last == NULL_INT, NULL_INT, first), last


def _launch_rows(parts: _RankParts) -> Columns:
    def column(name: str) -> IntArray:
        return joined([watched.launches[name] for _, watched in parts])

    shown_n = [watched.launches["key"].size for _, watched in parts]
    launches_n = np.array([watched.launches_n for _, watched in parts], dtype=np.int64)
    keys = [watched.keys[key] for _, watched in parts for key in watched.launches["key"].tolist()]
    return {
        **rank_columns([(rank, n) for (rank, _), n in zip(parts, shown_n, strict=True)]),
        "launches_n": np.repeat(launches_n, shown_n),
        "launch": column("launch"),
        **{name: nullable(column(name)) for name in _LAUNCH},
        "name": [key[0] for key in keys],
        "graph_node": column("graph_node").astype(bool),
        **_config_columns(keys),
    }


def _over_all_ranks(parts: _RankParts) -> Columns:
    keys = sorted({key for _, watched in parts for key in watched.keys})
    place = {key: index for index, key in enumerate(keys)}
    codes = [np.array([place[key] for key in watched.keys], dtype=np.int64) for _, watched in parts]
    counts = ValueCounts.merge(
        [watched.durations.regrouped(code) for (_, watched), code in zip(parts, codes, strict=True)]
    )
    total_ns = summed(joined(codes), joined([watched.total_ns for _, watched in parts]), len(keys))
    launched = [
        code[watched.first_ns != NULL_INT] for (_, watched), code in zip(parts, codes, strict=True)
    ]
    columns = {
        **_statistics(keys, counts, total_ns, int(total_ns.sum())),
        "ranks_n": np.bincount(joined(launched), minlength=len(keys)).astype(np.int64),
    }
    return sorted_columns(columns, "-total_ns", "name")


def _per_rank(parts: _RankParts) -> Columns:
    watched = [part for _, part in parts]
    keys_n = [len(part.keys) for part in watched]
    first_key = np.cumsum([0, *keys_n]).tolist()
    counts = ValueCounts.merge(
        [
            part.durations.regrouped(np.arange(at, at + n))
            for part, at, n in zip(watched, first_key, keys_n, strict=False)
        ]
    )
    whole_ns = np.array([part.total_ns.sum() for part in watched], dtype=np.int64)
    keys = [key for part in watched for key in part.keys]
    columns = {
        **rank_columns([(rank, len(part.keys)) for rank, part in parts]),
        **_statistics(
            keys, counts, joined([part.total_ns for part in watched]), np.repeat(whole_ns, keys_n)
        ),
        "first_start_ns": nullable(joined([part.first_ns for part in watched])),
        "last_start_ns": nullable(joined([part.last_ns for part in watched])),
        "longest_start_ns": nullable(joined([part.longest_ns for part in watched])),
    }
    return sorted_columns(columns, "rank", "-total_ns", "name")


def _statistics(
    keys: Sequence[tuple[Any, ...]],
    counts: ValueCounts,
    total_ns: IntArray,
    whole_ns: IntArray | int,
) -> Columns:
    rich = spread_columns(counts.spread(len(keys)))
    wanted = ("launches_n", "mean_ns", "std_ns", "min_ns", "p50_ns", "p99_ns", "max_ns")
    return {
        "name": [key[0] for key in keys],
        **_config_columns(keys),
        **{name: rich[name] for name in wanted},
        "total_ns": total_ns,
        "total_pct": percent(total_ns, whole_ns),
    }


def _config_columns(keys: Sequence[tuple[Any, ...]]) -> Columns:
    values = np.array([key[1:] for key in keys], dtype=np.int64).reshape(-1, len(CONFIG))
    return {name: nullable(values[:, i]) for i, name in enumerate(CONFIG)}
