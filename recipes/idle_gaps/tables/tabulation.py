"""Tables of idle_gaps out of the merged partial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.device.gap_sums import BUCKET_EDGES_NS, BUCKETS, GapSums
from nsys_llm.numeric.distributions import interpolate
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import stacked
from nsys_llm.report.columns import (
    Columns,
    of_rank,
    percent,
    rank_columns,
    sorted_columns,
)
from nsys_llm.report.host_tables import host_tables
from nsys_llm.report.outputs import Cells
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, CAUSES, IDLE_CAUSES_N
from nsys_llm.trace.identity import Rank

from ..partials import DeviceIdle, IdlePartial, IdleTimes, RankIdle
from ..per_rank.gap_rows import gap_columns
from ..per_rank.patterns import pattern_columns

_LOWS_NS: Final = (0, *BUCKET_EDGES_NS)

_DeviceRows = Sequence[tuple[Rank, RankIdle, DeviceIdle]]
_Known = Sequence[tuple[Rank, DeviceIdle, GapSums]]

_OF_DEVICE: Final = (
    "device_id",
    "windowed_by",
    "window_start_ns",
    "window_end_ns",
    "window_ns",
    "ops_n",
    "transfers_n",
    "busy_ns",
    "kernel_busy_ns",
    "copy_only_ns",
    "overhead_ns",
)


def tabulate(
    partial: IdlePartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    rows = [(rank, partial.ranks[rank.key]) for rank in ranks]
    devices = [(rank, idle, device) for rank, idle in rows for device in idle.devices]
    gaps = [(rank, gap) for rank, idle in rows for gap in idle.gaps]
    gaps.sort(key=lambda row: row[1].start_ns - row[1].end_ns)
    patterns = [(rank, idle.patterns) for rank, idle in rows]
    known = [(rank, device, device.sums) for rank, _, device in devices if device.sums is not None]
    whole = GapSums.total([sums for _, _, sums in known])
    return {
        "devices": _device_rows(devices),
        **_cause_tables(known, whole),
        "gaps": gap_columns(gaps[: options["top"]]),
        "patterns": pattern_columns(patterns, partial.pattern_lengths, options["top"]),
        "idle_map": _map_columns(devices),
        **host_tables([(rank, idle.host) for rank, idle in rows]),
    }


def _device_rows(devices: _DeviceRows) -> list[dict[str, Any]]:
    return [
        {
            **of_rank(rank),
            **{name: getattr(device, name) for name in _OF_DEVICE},
            "not_recorded_ns": device.lost_ns,
            **asdict(idle.copies),
            **_statistics(device),
        }
        for rank, idle, device in devices
    ]


def _statistics(device: DeviceIdle) -> dict[str, float | None]:
    sums, lengths, window_ns = device.sums, device.lengths, device.window_ns
    kernel_only_ns = window_ns - device.kernel_busy_ns - device.overhead_ns - device.lost_ns
    certain_ns = 0 if sums is None else int(sums.certain_ns[:IDLE_CAUSES_N].sum())
    gaps_n = int(lengths.moments.n[0])
    percentiles = interpolate(lengths.order)[0]
    return {
        "idle_ns": device.idle_ns,
        "before_capture_ns": device.early_ns,
        "idle_pct": _pct(device.idle_ns, window_ns),
        "kernel_only_idle_ns": kernel_only_ns,
        "kernel_only_idle_pct": _pct(kernel_only_ns, window_ns),
        "certain_ns": certain_ns,
        "certain_pct": _pct(certain_ns, device.idle_ns),
        "gaps_n": gaps_n,
        "gap_p50_ns": float(percentiles[1]) if gaps_n else None,
        "gap_p99_ns": float(percentiles[5]) if gaps_n else None,
        "gap_max_ns": int(lengths.moments.maximum[0]) if gaps_n else None,
    }


def _pct(part_ns: int, whole_ns: int) -> float | None:
    return 100.0 * part_ns / whole_ns if whole_ns else None


def _cause_tables(known: _Known, whole: GapSums) -> dict[str, Columns]:
    """Return cause_sums, causes and rank_causes; only rows with a gap or with time."""
    idle_ns = sum(device.idle_ns for _, device, _ in known)
    window_ns = sum(device.window_ns for _, device, _ in known)
    causes = _bucket_columns(whole, idle_ns, window_ns)
    parts = [_bucket_columns(sums, device.idle_ns, device.window_ns) for _, device, sums in known]
    rows_n = [len(part["cause"]) for part in parts]
    device_id = np.array([device.device_id for _, device, _ in known], dtype=np.int64)
    return {
        "cause_sums": _sum_columns(known, whole, idle_ns, window_ns),
        "causes": sorted_columns(causes, "-idle_ns", "cause", "low_ns"),
        "rank_causes": {
            **rank_columns([(rank, n) for (rank, _, _), n in zip(known, rows_n, strict=True)]),
            "device_id": np.repeat(device_id, rows_n),
            **{name: [value for part in parts for value in part[name]] for name in causes},
        },
    }


def _bucket_columns(sums: GapSums, idle_ns: int, window_ns: int) -> Columns:
    cause, bucket = np.nonzero((sums.gaps_n > 0) | (sums.time_ns > 0))
    time, overhead = sums.time_ns[cause, bucket], cause >= IDLE_CAUSES_N
    idle = np.where(overhead, 0, time)
    return {
        "cause": [CAUSE_NAMES[code] for code in cause.tolist()],
        "bucket": [BUCKETS[code] for code in bucket.tolist()],
        "low_ns": [_LOWS_NS[code] for code in bucket.tolist()],
        "gaps_n": sums.gaps_n[cause, bucket],
        "idle_ns": idle,
        "idle_pct": percent(idle, idle_ns, empty=0.0),
        "window_pct": percent(idle, window_ns, empty=0.0),
        "certain_ns": np.where(overhead, 0, sums.certain_ns[cause, bucket]),
        "overhead_ns": np.where(overhead, time, 0),
    }


def _sum_columns(known: _Known, whole: GapSums, idle_ns: int, window_ns: int) -> Columns:
    of_rank: dict[tuple[int | None, str], IntArray] = {}
    for rank, _, gap_sums in known:
        key = (rank.number, rank.file)
        of_rank[key] = of_rank.get(key, 0) + gap_sums.time_ns.sum(axis=1)
    keys = list(of_rank)
    by_rank = np.array([of_rank[key] for key in keys]).reshape(-1, len(CAUSE_NAMES))
    idle, gaps_n = whole.time_ns.sum(axis=1), whole.gaps_n.sum(axis=1)
    used = np.flatnonzero(idle + gaps_n)
    used = used[used < IDLE_CAUSES_N]
    used = used[np.argsort(-idle[used], kind="stable")]
    worst = by_rank[:, used].argmax(axis=0).tolist() if keys else []
    return {
        "cause": [CAUSE_NAMES[code] for code in used.tolist()],
        "meaning": [CAUSES[CAUSE_NAMES[code]] for code in used.tolist()],
        "ranks_n": (by_rank[:, used] > 0).sum(axis=0),
        "gaps_n": gaps_n[used],
        "idle_ns": idle[used],
        "idle_pct": percent(idle[used], idle_ns, empty=0.0),
        "window_pct": percent(idle[used], window_ns, empty=0.0),
        "certain_ns": whole.certain_ns.sum(axis=1)[used],
        "most_rank": [keys[at][0] for at in worst],
        "most_ns": by_rank[worst, used] if keys else [],
    }


def _map_columns(devices: _DeviceRows) -> Columns:
    parts = [(rank, device, device.times) for rank, _, device in devices if device.times]
    sizes = [times.window_ns.size for _, _, times in parts]
    several = {rank.key for rank, idle, _ in devices if len(idle.devices) > 1}
    labels = [
        f"{rank.file}, device {device.device_id}" if rank.key in several else rank.file
        for rank, device, _ in parts
    ]
    rows = stacked(IdleTimes, [times for _, _, times in parts])
    busy_ns = rows.window_ns - rows.gap_ns
    device_id = np.array([device.device_id for _, device, _ in parts], dtype=np.int64)
    return {
        **rank_columns([(rank, n) for (rank, _, _), n in zip(parts, sizes, strict=True)]),
        "device_id": np.repeat(device_id, sizes),
        "rank_device": [label for label, n in zip(labels, sizes, strict=True) for _ in range(n)],
        "part": joined([np.arange(1, n + 1) for n in sizes]),
        "start_ns": rows.start_ns,
        "end_ns": rows.end_ns,
        "window_ns": rows.window_ns,
        "busy_ns": busy_ns,
        "overhead_ns": rows.overhead_ns,
        "idle_ns": rows.gap_ns - rows.overhead_ns,
        "busy_pct": percent(busy_ns, rows.window_ns),
    }
