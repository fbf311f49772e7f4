"""Tables of idle_gaps out of the merged partial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.analyses.device.gap_sums import BUCKET_EDGES_NS, BUCKETS, LENGTH_EDGES_NS, GapSums
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.numeric.distributions import interpolate
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, percent, sorted_columns
from nsys_llm.report.outputs import declared_frame
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, CAUSES, IDLE_CAUSES_N, PROFILER_OVERHEAD
from nsys_llm.trace.identity import Rank

from ..partials import DeviceIdle, IdlePartial, RankIdle
from ..per_rank.gap_rows import gap_columns
from ..per_rank.gap_timelines import timeline_columns
from ..per_rank.patterns import pattern_columns
from .cross_rank_idle import cross_rank_idle_tables

_RECIPE: Final = "idle_gaps"
_LOWS_NS: Final = (0, *BUCKET_EDGES_NS)

_RankRows = Sequence[tuple[Rank, RankIdle]]
_DeviceRows = Sequence[tuple[Rank, RankIdle, DeviceIdle]]


def tabulate(
    partial: IdlePartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables.

    Args:
        partial: All ranks.
        ranks: Those with GPU work, in order.
        options: top bounds lists; disable_alignment leaves out what needs one clock.

    Returns:
        By table name, as manifests/idle_gaps.json declares them.
    """
    rows = [(rank, partial.ranks[rank.key]) for rank in ranks]
    devices = [(rank, idle, device) for rank, idle in rows for device in idle.devices]
    gaps = [(rank, gap) for rank, idle in rows for gap in idle.gaps]
    gaps.sort(key=lambda row: row[1].start_ns - row[1].end_ns)
    patterns = [(rank, idle.patterns) for rank, idle in rows]
    columns = {
        "devices": _device_columns(devices),
        **_cause_tables(devices),
        "gaps": gap_columns(gaps[: options["top"]]),
        "gap_timelines": timeline_columns(partial.timelines, {rank.key: rank for rank in ranks}),
        "gap_lengths": _length_columns(devices),
        "patterns": pattern_columns(patterns, partial.pattern_lengths, options["top"]),
        **cross_rank_idle_tables(rows, options),
        "idle_map": _map_columns(devices),
    }
    manifest = load_manifest(_RECIPE)
    return {name: declared_frame(manifest.table(name), table) for name, table in columns.items()}


def _device_columns(devices: _DeviceRows) -> Columns:
    rows = [_device_row(rank, idle, device) for rank, idle, device in devices]
    names = [column.name for column in load_manifest(_RECIPE).table("devices").columns]
    return {name: [row[name] for row in rows] for name in names}


def _device_row(rank: Rank, idle: RankIdle, device: DeviceIdle) -> dict[str, Any]:
    known, window_ns = device.sums is not None, device.window_ns
    busy_ns = window_ns - device.gap_ns
    idle_ns = device.gap_ns - device.overhead_ns
    kernel_only_ns = window_ns - device.kernel_busy_ns - device.overhead_ns
    return {
        "rank": rank.number,
        "file": rank.file,
        "device_id": device.device_id,
        "windowed_by": device.window_source,
        "window_start_ns": device.window_start_ns,
        "window_end_ns": device.window_end_ns,
        "window_ns": window_ns,
        "ops_n": device.ops_n,
        "transfers_n": device.transfers_n,
        "busy_ns": busy_ns,
        "kernel_busy_ns": device.kernel_busy_ns,
        "copy_only_ns": busy_ns - device.kernel_busy_ns,
        "overhead_ns": device.overhead_ns,
        "known": known,
        "opaque_launches_n": idle.missing.opaque_launches_n,
        "graphs_cut_n": idle.missing.graphs_cut_n,
        "copy_calls_n": idle.missing.copy_calls_n,
        "copies_seen_n": idle.missing.copies_seen_n,
        "copies_cut_n": idle.missing.copies_cut_n,
        "idle_ns": idle_ns if known else None,
        "before_capture_ns": device.early_ns if known else None,
        "idle_pct": _pct(idle_ns, window_ns) if known else None,
        "kernel_only_idle_ns": kernel_only_ns if known else None,
        "kernel_only_idle_pct": _pct(kernel_only_ns, window_ns) if known else None,
        **_gap_statistics(device, idle_ns),
    }


def _gap_statistics(device: DeviceIdle, idle_ns: int) -> dict[str, Any]:
    if device.sums is None or device.lengths is None or device.order is None:
        names = ("certain_ns", "certain_pct", "gaps_n", "gap_p50_ns", "gap_p99_ns", "gap_max_ns")
        return dict.fromkeys(names)
    gaps_n = int(device.lengths.n[0])
    percentiles = interpolate(device.order)[0]
    certain_ns = int(device.sums.certain_ns[:IDLE_CAUSES_N].sum())
    return {
        "certain_ns": certain_ns,
        "certain_pct": _pct(certain_ns, idle_ns),
        "gaps_n": gaps_n,
        "gap_p50_ns": float(percentiles[1]) if gaps_n else None,
        "gap_p99_ns": float(percentiles[5]) if gaps_n else None,
        "gap_max_ns": int(device.lengths.maximum[0]) if gaps_n else None,
    }


def _pct(part_ns: int, whole_ns: int) -> float | None:
    return 100.0 * part_ns / whole_ns if whole_ns else None


def _cause_tables(devices: _DeviceRows) -> dict[str, Columns]:
    """Return cause_sums, causes and rank_causes; only rows with a gap or with time."""
    known = [(rank, device, device.sums) for rank, _, device in devices if device.sums is not None]
    shape = (len(CAUSE_NAMES), len(BUCKETS))
    sums = tuple(np.zeros(shape, dtype=np.int64) for _ in range(3))
    per_rank: list[Columns] = []
    for rank, device, gap_sums in known:
        idle_ns = device.gap_ns - device.overhead_ns
        for whole, part in zip(
            sums, (gap_sums.gaps_n, gap_sums.time_ns, gap_sums.certain_ns), strict=True
        ):
            whole += part
        buckets = _bucket_columns(
            gap_sums.gaps_n, gap_sums.time_ns, gap_sums.certain_ns, idle_ns, device.window_ns
        )
        size = len(buckets["cause"])
        place = {"rank": rank.number, "file": rank.file, "device_id": device.device_id}
        per_rank.append({**{name: [value] * size for name, value in place.items()}, **buckets})
    idle_ns = sum(device.gap_ns - device.overhead_ns for _, device, _ in known)
    window_ns = sum(device.window_ns for _, device, _ in known)
    gaps_n, time_ns, certain_ns = sums
    causes = _bucket_columns(gaps_n, time_ns, certain_ns, idle_ns, window_ns)
    names = ("rank", "file", "device_id", *causes)
    return {
        "cause_sums": _sum_columns(gaps_n, time_ns, certain_ns, known, idle_ns, window_ns),
        "causes": sorted_columns(causes, "-idle_ns", "cause", "low_ns"),
        "rank_causes": {
            name: [value for part in per_rank for value in part[name]] for name in names
        },
    }


def _bucket_columns(
    gaps_n: IntArray, time_ns: IntArray, certain_ns: IntArray, idle_ns: int, window_ns: int
) -> Columns:
    used = np.argwhere((gaps_n > 0) | (time_ns > 0))
    cause, bucket = used[:, 0], used[:, 1]
    time, overhead = time_ns[cause, bucket], cause == PROFILER_OVERHEAD
    idle = np.where(overhead, 0, time)
    return {
        "cause": [CAUSE_NAMES[code] for code in cause.tolist()],
        "bucket": [BUCKETS[code] for code in bucket.tolist()],
        "low_ns": [_LOWS_NS[code] for code in bucket.tolist()],
        "gaps_n": gaps_n[cause, bucket].tolist(),
        "idle_ns": idle.tolist(),
        "idle_pct": percent(idle, idle_ns, empty=0.0).tolist(),
        "window_pct": percent(idle, window_ns, empty=0.0).tolist(),
        "certain_ns": np.where(overhead, 0, certain_ns[cause, bucket]).tolist(),
        "overhead_ns": np.where(overhead, time, 0).tolist(),
    }


def _sum_columns(
    gaps_n: IntArray,
    time_ns: IntArray,
    certain_ns: IntArray,
    known: Sequence[tuple[Rank, DeviceIdle, GapSums]],
    idle_ns: int,
    window_ns: int,
) -> Columns:
    of_rank: dict[tuple[int | None, str], IntArray] = {}
    for rank, _, gap_sums in known:
        key = (rank.number, rank.file)
        of_rank[key] = of_rank.get(key, 0) + gap_sums.time_ns.sum(axis=1)
    keys = list(of_rank)
    by_rank = np.array([of_rank[key] for key in keys]).reshape(-1, len(CAUSE_NAMES))
    idle = time_ns.sum(axis=1)
    used = np.flatnonzero(idle + gaps_n.sum(axis=1))
    used = used[used < IDLE_CAUSES_N]
    used = used[np.argsort(-idle[used], kind="stable")]
    worst = by_rank[:, used].argmax(axis=0).tolist() if keys else []
    return {
        "cause": [CAUSE_NAMES[code] for code in used.tolist()],
        "meaning": [CAUSES[CAUSE_NAMES[code]] for code in used.tolist()],
        "ranks_n": (by_rank[:, used] > 0).sum(axis=0),
        "gaps_n": gaps_n.sum(axis=1)[used],
        "idle_ns": idle[used],
        "idle_pct": percent(idle[used], idle_ns, empty=0.0),
        "window_pct": percent(idle[used], window_ns, empty=0.0),
        "certain_ns": certain_ns.sum(axis=1)[used],
        "most_rank": [keys[at][0] for at in worst],
        "most_ns": by_rank[worst, used] if keys else [],
    }


def _length_columns(devices: _DeviceRows) -> Columns:
    known = [device.sums for _, _, device in devices if device.sums is not None]
    shape = (len(CAUSE_NAMES), len(LENGTH_EDGES_NS) - 1)
    gaps_n, total_ns = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for gap_sums in known:
        gaps_n += gap_sums.lengths_n
        total_ns += gap_sums.lengths_ns
    cause, length = np.nonzero(gaps_n)
    return {
        "cause": [CAUSE_NAMES[code] for code in cause.tolist()],
        "low_ns": LENGTH_EDGES_NS[length],
        "high_ns": LENGTH_EDGES_NS[length + 1],
        "gaps_n": gaps_n[cause, length],
        "total_ns": total_ns[cause, length],
    }


def _map_columns(devices: _DeviceRows) -> Columns:
    rows = [(rank, device, device.times) for rank, _, device in devices if device.times is not None]
    sizes = [times.window_ns.size for _, _, times in rows]
    several = {rank.key for rank, idle, _ in devices if len(idle.devices) > 1}
    labels = [
        f"{rank.file}, device {device.device_id}" if rank.key in several else rank.file
        for rank, device, _ in rows
    ]

    def every(name: str) -> IntArray:
        return joined([getattr(times, name) for _, _, times in rows])

    window_ns, gap_ns, overhead_ns = every("window_ns"), every("gap_ns"), every("overhead_ns")
    edges = [times.edges_ns for _, _, times in rows]
    return {
        "rank": np.repeat(np.array([rank.number for rank, _, _ in rows], dtype=np.int64), sizes),
        "file": [rank.file for (rank, _, _), n in zip(rows, sizes, strict=True) for _ in range(n)],
        "device_id": np.repeat(
            np.array([device.device_id for _, device, _ in rows], np.int64), sizes
        ),
        "rank_device": [label for label, n in zip(labels, sizes, strict=True) for _ in range(n)],
        "part": joined([np.arange(1, n + 1) for n in sizes]),
        "start_ns": joined([edge[:-1] for edge in edges]),
        "end_ns": joined([edge[1:] for edge in edges]),
        "window_ns": window_ns,
        "busy_ns": window_ns - gap_ns,
        "overhead_ns": overhead_ns,
        "idle_ns": gap_ns - overhead_ns,
        "busy_pct": percent(window_ns - gap_ns, window_ns),
    }
