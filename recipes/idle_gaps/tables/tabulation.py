"""Makes the tables of idle_gaps of all ranks, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.facts.device.idle_split import BUCKET_EDGES_NS, BUCKETS, GapSums
from nsys_llm.facts.idle.devices import DeviceIdle
from nsys_llm.facts.idle.rank import RankIdle
from nsys_llm.numeric.distributions import interpolate
from nsys_llm.reduced.job import Job
from nsys_llm.report.columns import (
    Columns,
    of_rank,
    percent,
    rank_columns,
)
from nsys_llm.report.host_tables import host_tables
from nsys_llm.report.outputs import Cells
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, CAUSES, IDLE_CAUSES_N
from nsys_llm.trace.identity import Rank

from .gaps import gap_columns, pattern_columns

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


def tabulate(job: Job) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    facts, top = job.facts.idle, job.options["top"]
    rows = [(rank, facts.ranks[rank.key]) for rank in job.ranks]
    devices = [(rank, idle, device) for rank, idle in rows for device in idle.devices]
    gaps = [(rank, gap) for rank, idle in rows for gap in idle.gaps]
    gaps.sort(key=lambda row: row[1].start_ns - row[1].end_ns)
    patterns = [(rank, idle.patterns) for rank, idle in rows]
    known = [(rank, device, device.sums) for rank, _, device in devices if device.sums is not None]
    return {
        "devices": _device_rows(devices),
        "rank_causes": _cause_columns(known),
        "gaps": gap_columns(gaps[:top]),
        "patterns": pattern_columns(patterns, facts.pattern_lengths, top),
        **host_tables([(rank, idle.host) for rank, idle in rows]),
    }


def _device_rows(devices: _DeviceRows) -> list[dict[str, Any]]:
    return [
        {
            **of_rank(rank),
            **{name: getattr(device, name) for name in _OF_DEVICE},
            "not_recorded_ns": device.lost_ns,
            "copy_calls_n": idle.copy_calls_n,
            "copies_seen_n": idle.copies_seen_n,
            "copies_cut_n": idle.copies_cut_n,
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
        "kernel_only_idle_pct": _pct(kernel_only_ns, window_ns),
        "certain_ns": certain_ns,
        "certain_pct": _pct(certain_ns, device.idle_ns),
        "gaps_n": gaps_n,
        "gap_p50_ns": float(percentiles[1]) if gaps_n else None,
        "gap_max_ns": int(lengths.moments.maximum[0]) if gaps_n else None,
    }


def _pct(part_ns: int, whole_ns: int) -> float | None:
    return 100.0 * part_ns / whole_ns if whole_ns else None


def _cause_columns(known: _Known) -> Columns:
    """Return rank_causes; only rows with a gap or with time."""
    shape = (-1, len(CAUSE_NAMES), len(BUCKETS))
    gaps_n, time_ns, certain_ns = (
        np.array([getattr(sums, name) for _, _, sums in known], dtype=np.int64).reshape(shape)
        for name in ("gaps_n", "time_ns", "certain_ns")
    )
    device, cause, bucket = place = np.nonzero((gaps_n > 0) | (time_ns > 0))
    rows_n = np.bincount(device, minlength=len(known)).tolist()
    devices = [some for _, some, _ in known]
    device_id, idle_ns, window_ns = (
        np.array([getattr(some, name) for some in devices], dtype=np.int64)[device]
        for name in ("device_id", "idle_ns", "window_ns")
    )
    overhead = cause >= IDLE_CAUSES_N
    ranges = [
        devices[at].ranges.get((of, length), (None, 0))
        for at, of, length in zip(*(codes.tolist() for codes in place), strict=True)
    ]
    idle = np.where(overhead, 0, time_ns[place])
    return {
        **rank_columns([(rank, n) for (rank, _, _), n in zip(known, rows_n, strict=True)]),
        "device_id": device_id,
        "cause": [CAUSE_NAMES[code] for code in cause.tolist()],
        "meaning": [CAUSES[CAUSE_NAMES[code]] for code in cause.tolist()],
        "bucket": [BUCKETS[code] for code in bucket.tolist()],
        "low_ns": [_LOWS_NS[code] for code in bucket.tolist()],
        "gaps_n": gaps_n[place],
        "idle_ns": idle,
        "idle_pct": percent(idle, idle_ns, empty=0.0),
        "window_pct": percent(idle, window_ns, empty=0.0),
        "certain_ns": np.where(overhead, 0, certain_ns[place]),
        "overhead_ns": np.where(overhead, time_ns[place], 0),
        "nvtx_range": [name for name, _ in ranges],
        "range_ns": [ns for _, ns in ranges],
    }
