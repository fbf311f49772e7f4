"""The table overlap: computation, communication and copies, alone, together, exposed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.overlap import BusyParts, DeviceOverlap
from nsys_llm.report.columns import Columns, percent
from nsys_llm.trace.identity import Rank

from ..per_rank.exposed_copies import ExposedCopies

#: Columns by what they are called in `ExposedCopies`.
_OF_COPIES: Final = {
    "exposed_ns": "exposed_copy_ns",
    "from_host_ns": "exposed_htod_ns",
    "to_host_ns": "exposed_dtoh_ns",
    "both_ways_ns": "exposed_both_ways_ns",
    "pageable_ns": "exposed_pageable_ns",
}


def overlap_columns(
    rows: Iterable[tuple[Rank, tuple[DeviceOverlap, ...], Mapping[int, ExposedCopies]]],
) -> Columns:
    """Return the table overlap; one row a device of a rank, in order."""
    gpus = [
        (rank, device, copies[device.device_id])
        for rank, devices, copies in rows
        for device in devices
    ]
    rank_devices = [(rank, device) for rank, device, _ in gpus]
    parts = {
        name: _integers(getattr(device.parts, name) for _, device in rank_devices)
        for name in BusyParts.__dataclass_fields__
    }
    communication = _integers(device.communication_ns for _, device in rank_devices)
    exposed = parts["communication_only_ns"] + parts["communication_copy_ns"]
    busy = _integers(device.busy_ns for _, device in rank_devices)
    return {
        "rank": [rank.number for rank, _ in rank_devices],
        "file": [rank.file for rank, _ in rank_devices],
        "device_id": [device.device_id for _, device in rank_devices],
        "busy_ns": busy,
        "compute_ns": [device.compute_ns for _, device in rank_devices],
        "communication_ns": communication,
        "copy_ns": [device.copy_ns for _, device in rank_devices],
        **parts,
        "exposed_communication_ns": exposed,
        "exposed_communication_pct": percent(exposed, communication),
        "exposed_busy_pct": percent(exposed, busy),
        "exposed_start_ns": [_bound(device, 0) for _, device in rank_devices],
        "exposed_end_ns": [_bound(device, 1) for _, device in rank_devices],
        "first_exposed_ns": [device.first_exposed_ns for _, device in rank_devices],
        **{
            column: [getattr(copies, name) for _, _, copies in gpus]
            for name, column in _OF_COPIES.items()
        },
    }


def _integers(values: Iterable[int]) -> npt.NDArray[Any]:
    return np.array(list(values), dtype=np.int64)


def _bound(device: DeviceOverlap, side: int) -> int | None:
    return None if device.exposed_window_ns is None else device.exposed_window_ns[side]
