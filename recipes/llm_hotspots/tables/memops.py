"""The tables of copies and fills, and of computation, communication and copies together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.facts.device.overlap import BusyParts
from nsys_llm.facts.operations.memops import ExposedCopies, MemopRows
from nsys_llm.facts.operations.rank import RankRows
from nsys_llm.numeric.distributions import MEDIAN, Spread, interpolate
from nsys_llm.numeric.stacking import stacked
from nsys_llm.report.columns import (
    Columns,
    nullable,
    percent,
    rank_columns,
    record_columns,
    sorted_columns,
)
from nsys_llm.taxonomy.cuda_codes import MoveKind
from nsys_llm.taxonomy.gpus import gpu_peak

BYTES_PER_GB: Final = 1e9

#: Copies over the link of a GPU to its host.
_WAYS: Final = ("HtoD", "DtoH")
_SUMS: Final = ("total_ns", "union_ns", "exposed_ns")
_BUSY: Final = ("busy_ns", "compute_ns", "communication_ns", "copy_ns")


def memop_columns(ranks: RankRows) -> Columns:
    """Return the table memops."""
    rows = stacked(MemopRows, [part.memops.rows for _, part in ranks])
    kinds = [MoveKind.of(code) for code in rows.kind.tolist()]
    peaks, gpus = [], []
    for rank, part in ranks:
        devices = part.memops.rows.device_id.tolist()
        peaks += [part.memops.peaks[device] for device in devices]
        gpus += [frozenset(rank.facts.gpus if rank.facts else ())] * len(devices)
    # NaN where no operation is large.
    fastest_gb_s = np.where(
        rows.fastest_ns > 0, rows.fastest_bytes / np.maximum(rows.fastest_ns, 1), np.nan
    )
    columns = {
        **rank_columns([(rank, part.memops.rows.kind.size) for rank, part in ranks]),
        "device_id": rows.device_id,
        "kind": [kind.kind for kind in kinds],
        "source_memory": [kind.source for kind in kinds],
        "target_memory": [kind.target for kind in kinds],
        "pageable": pd.array([kind.pageable for kind in kinds], dtype="boolean"),
        **{name: getattr(rows, name) for name in _SUMS},
        "exposed_start_ns": nullable(rows.exposed_start_ns),
        "exposed_end_ns": nullable(rows.exposed_end_ns),
        **_spread(rows.times, rows.sizes),
        **_rates(rows, kinds, peaks),
        "fastest_gb_s": fastest_gb_s,
        "pinned_gb_s": _pinned_gb_s(kinds, fastest_gb_s, gpus),
    }
    return sorted_columns(columns, "rank", "device_id", "-total_ns", "kind")


def _pinned_gb_s(
    kinds: Sequence[MoveKind], fastest_gb_s: npt.NDArray[Any], gpus: Sequence[frozenset[str]]
) -> list[float]:
    """Return what copies between pinned memory and the GPU reach; NaN where nobody knows.

    The fastest one of the run that goes the same way, else what the link of the GPU's name carries.
    """
    seen: dict[str, float] = {}
    for kind, rate in zip(kinds, fastest_gb_s.tolist(), strict=True):
        if kind.pageable is False and rate > 0:
            seen[kind.kind] = max(rate, seen.get(kind.kind, 0.0))
    links = {names: [gpu_peak(name) for name in names] for names in set(gpus)}
    known = {names: {peak and peak.pinned_gb_s for peak in some} for names, some in links.items()}
    of_links = {names: rates.pop() if len(rates) == 1 else None for names, rates in known.items()}
    return [
        (seen.get(kind.kind) or of_links[names] or np.nan) if kind.kind in _WAYS else np.nan
        for kind, names in zip(kinds, gpus, strict=True)
    ]


def _spread(times: Spread, sizes: Spread) -> Columns:
    time, size = times.moments, sizes.moments
    none, unknown = time.n == 0, size.n < time.n
    median_bytes = interpolate(sizes.order)[:, MEDIAN].astype(np.int64)
    integers = {
        "min_ns": (time.minimum, none),
        "max_ns": (time.maximum, none),
        "size_bytes": (size.total, unknown),
        "median_bytes": (median_bytes, unknown | none),
    }
    return {
        "ops_n": time.n,
        "p50_ns": np.where(none, np.nan, interpolate(times.order)[:, MEDIAN]),
        **{
            name: pd.arrays.IntegerArray(values.copy(), null.copy())
            for name, (values, null) in integers.items()
        },
    }


def _rates(rows: MemopRows, kinds: Sequence[MoveKind], peaks: Sequence[int | None]) -> Columns:
    """Return bytes over the summed time of the same operations, and what the GPU could do."""
    times, sizes = rows.times.moments, rows.sizes.moments
    unknown = (sizes.n < times.n) | (times.total == 0)
    # Bytes a nanosecond are gigabytes a second.
    rate = np.where(unknown, np.nan, sizes.total / np.where(times.total == 0, 1, times.total))
    traffic = _floats([kind.device_traffic for kind in kinds])
    peak = np.where(np.isnan(traffic), np.nan, _floats(peaks) / BYTES_PER_GB)
    return {"rate_gb_s": rate, "peak_gb_s": peak, "peak_pct": 100.0 * rate * traffic / peak}


def _floats(values: Sequence[int | None]) -> npt.NDArray[Any]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def overlap_columns(ranks: RankRows) -> Columns:
    """Return the table overlap; one row a device of a rank, in order."""
    devices = [(rank, device) for rank, part in ranks for device in part.overlap]
    copies = [part.memops.exposed[device.device_id] for _, part in ranks for device in part.overlap]
    columns = record_columns(devices, "device_id", *_BUSY)
    parts = {
        of.name: np.array([getattr(device.parts, of.name) for _, device in devices], dtype=np.int64)
        for of in fields(BusyParts)
    }
    exposed_ns = parts["communication_only_ns"] + parts["communication_copy_ns"]
    windows = [device.exposed_window_ns or (None, None) for _, device in devices]
    return {
        **columns,
        **parts,
        "exposed_communication_ns": exposed_ns,
        "exposed_communication_pct": percent(exposed_ns, columns["communication_ns"]),
        "exposed_start_ns": [start_ns for start_ns, _ in windows],
        "exposed_end_ns": [end_ns for _, end_ns in windows],
        **{of.name: [getattr(some, of.name) for some in copies] for of in fields(ExposedCopies)},
    }
