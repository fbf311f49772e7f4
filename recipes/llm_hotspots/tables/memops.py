"""The tables of copies and fills: memops, all_memops, blocking_memops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import MEDIAN, Moments, OrderStatistics, interpolate
from nsys_llm.numeric.grouping import distinct_codes, joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, percent, sorted_columns
from nsys_llm.taxonomy.cuda_codes import MoveKind
from nsys_llm.trace.identity import Rank

from ..per_rank.blocking import RULES
from ..per_rank.memops import MemopCounts, MemopRows, RankMemops

BYTES_PER_GB: Final = 1e9

_RankRows = Sequence[tuple[Rank, RankMemops]]


def memop_tables(rows: _RankRows, counts: MemopCounts) -> dict[str, Columns]:
    """Return the tables memops, all_memops and blocking_memops.

    Args:
        rows: The ranks, in order.
        counts: Of all ranks together.
    """
    return {
        "memops": _memops(rows),
        "all_memops": _all_memops(rows, counts),
        "blocking_memops": _blocking(rows),
    }


def _memops(rows: _RankRows) -> Columns:
    parts = [(rank, memops.rows, memops.peaks) for rank, memops in rows]
    kinds = [MoveKind.of(code) for _, part, _ in parts for code in part.kind.tolist()]
    times = Moments.joined([part.times for _, part, _ in parts])
    time_order = OrderStatistics.joined([part.time_order for _, part, _ in parts])
    sizes = Moments.joined([part.sizes for _, part, _ in parts])
    size_order = OrderStatistics.joined([part.size_order for _, part, _ in parts])
    peaks = [peak[device] for _, part, peak in parts for device in part.device_id.tolist()]
    start_ns = joined([part.exposed_start_ns for _, part, _ in parts])
    end_ns = joined([part.exposed_end_ns for _, part, _ in parts])
    columns = {
        "rank": [rank.number for rank, part, _ in parts for _ in part.kind],
        "file": [rank.file for rank, part, _ in parts for _ in part.kind],
        "device_id": joined([part.device_id for _, part, _ in parts]),
        **_kind_columns(kinds),
        **_sums(
            joined([part.total_ns for _, part, _ in parts]),
            joined([part.union_ns for _, part, _ in parts]),
            joined([part.exposed_ns for _, part, _ in parts]),
        ),
        "exposed_start_ns": pd.arrays.IntegerArray(start_ns, start_ns == NULL_INT),
        "exposed_end_ns": pd.arrays.IntegerArray(end_ns, end_ns == NULL_INT),
        **_spread(times, time_order, sizes, size_order),
        **_rates(times, sizes, kinds, peaks),
        "fastest_gb_s": _fastest(parts),
    }
    return sorted_columns(columns, "rank", "device_id", "-total_ns", "kind")


def _fastest(parts: Sequence[tuple[Rank, MemopRows, Any]]) -> npt.NDArray[np.float64]:
    """Return the rate of the fastest large operation of each row; NaN where there is none."""
    size_bytes = joined([part.fastest_bytes for _, part, _ in parts])
    time_ns = joined([part.fastest_ns for _, part, _ in parts])
    return np.where(time_ns > 0, size_bytes / np.maximum(time_ns, 1), np.nan)


def _all_memops(rows: _RankRows, counts: MemopCounts) -> Columns:
    """Return the kinds over all ranks, percentiles exact."""
    parts = [memops.rows for _, memops in rows]
    codes, code = distinct_codes(joined([part.kind for part in parts]))
    kinds = [MoveKind.of(code) for code in codes.tolist()]
    peaks_of: list[set[int | None]] = [set() for _ in kinds]
    ranks_of: list[set[int | None]] = [set() for _ in kinds]
    owners = [
        (rank, memops.peaks[device]) for rank, memops in rows for device in memops.rows.device_id
    ]
    for position, (rank, peak) in zip(code.tolist(), owners, strict=True):
        peaks_of[position].add(peak)
        ranks_of[position].add(rank.number)
    groups_n = int(codes.max(initial=-1)) + 1
    times, sizes = counts.times.moments(groups_n).take(codes), counts.sizes.moments(groups_n)
    time_order = counts.times.order_statistics(groups_n).take(codes)
    size_order = counts.sizes.order_statistics(groups_n).take(codes)
    columns = {
        **_kind_columns(kinds),
        "ranks_n": [len(ranks) for ranks in ranks_of],
        **_sums(
            *(
                summed(code, joined([getattr(part, name) for part in parts]), len(kinds))
                for name in ("total_ns", "union_ns", "exposed_ns")
            )
        ),
        **_spread(times, time_order, sizes.take(codes), size_order),
        # GPUs of different peaks have no common one.
        **_rates(times, sizes.take(codes), kinds, [_common(peaks) for peaks in peaks_of]),
    }
    return sorted_columns(columns, "-total_ns", "kind")


def _blocking(rows: _RankRows) -> Columns:
    parts = [(rank, memops.blocking) for rank, memops in rows]
    kinds = [MoveKind.of(code) for _, part in parts for code in part.kind.tolist()]
    start_ns = joined([part.start_ns for _, part in parts])
    end_ns = joined([part.end_ns for _, part in parts])
    columns = {
        "rank": [rank.number for rank, part in parts for _ in part.kind],
        "file": [rank.file for rank, part in parts for _ in part.kind],
        "device_id": joined([part.device_id for _, part in parts]),
        "rule": [RULES[value] for _, part in parts for value in part.rule.tolist()],
        "api": [name for _, part in parts for name in part.api],
        **_kind_columns(kinds),
        "ops_n": joined([part.ops_n for _, part in parts]),
        "size_bytes": joined([part.size_bytes for _, part in parts]),
        "total_ns": joined([part.total_ns for _, part in parts]),
        "max_ns": end_ns - start_ns,
        "window_start_ns": start_ns,
        "window_end_ns": end_ns,
    }
    return sorted_columns(columns, "rank", "device_id", "rule", "-total_ns", "api", "kind")


def _kind_columns(kinds: Sequence[MoveKind]) -> Columns:
    return {
        "kind": [kind.kind for kind in kinds],
        "source_memory": [kind.source for kind in kinds],
        "target_memory": [kind.target for kind in kinds],
        "pageable": pd.array([kind.pageable for kind in kinds], dtype="boolean"),
    }


def _sums(total_ns: IntArray, union_ns: IntArray, exposed_ns: IntArray) -> Columns:
    return {
        "total_ns": total_ns,
        "union_ns": union_ns,
        "exposed_ns": exposed_ns,
        "exposed_pct": percent(exposed_ns, union_ns),
    }


def _spread(
    times: Moments, time_order: OrderStatistics, sizes: Moments, size_order: OrderStatistics
) -> Columns:
    none, unknown = times.n == 0, sizes.n < times.n
    median_bytes = interpolate(size_order)[:, MEDIAN].astype(np.int64)
    return {
        "ops_n": times.n,
        "min_ns": pd.arrays.IntegerArray(times.minimum.copy(), none.copy()),
        "p50_ns": np.where(none, np.nan, interpolate(time_order)[:, MEDIAN]),
        "max_ns": pd.arrays.IntegerArray(times.maximum.copy(), none.copy()),
        "size_bytes": pd.arrays.IntegerArray(sizes.total.copy(), unknown.copy()),
        "min_bytes": pd.arrays.IntegerArray(sizes.minimum.copy(), unknown | none),
        "median_bytes": pd.arrays.IntegerArray(median_bytes, unknown | none),
        "max_bytes": pd.arrays.IntegerArray(sizes.maximum.copy(), unknown | none),
    }


def _rates(
    times: Moments, sizes: Moments, kinds: Sequence[MoveKind], peaks: Sequence[int | None]
) -> Columns:
    """Return bytes over the summed time of the same operations, and what the GPU could do."""
    unknown = (sizes.n < times.n) | (times.total == 0)
    # Bytes a nanosecond are gigabytes a second.
    rate = np.where(unknown, np.nan, sizes.total / np.where(times.total == 0, 1, times.total))
    traffic = _floats([kind.device_traffic for kind in kinds])
    peak = np.where(np.isnan(traffic), np.nan, _floats(peaks) / BYTES_PER_GB)
    return {"rate_gb_s": rate, "peak_gb_s": peak, "peak_pct": 100.0 * rate * traffic / peak}


def _floats(values: Sequence[int | None]) -> npt.NDArray[Any]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _common(values: set[int | None]) -> int | None:
    return next(iter(values)) if len(values) == 1 else None
