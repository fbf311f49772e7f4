"""The table overlap: computation, communication and copies, alone, together, exposed."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.facts.device.overlap import BusyParts
from nsys_llm.facts.operations.memops import ExposedCopies
from nsys_llm.facts.operations.rank import RankRows
from nsys_llm.report.columns import Columns, percent, record_columns

_TIMES: Final = ("busy_ns", "compute_ns", "communication_ns", "copy_ns")


def overlap_columns(ranks: RankRows) -> Columns:
    """Return the table overlap; one row a device of a rank, in order."""
    devices = [(rank, device) for rank, part in ranks for device in part.overlap]
    copies = [part.memops.exposed[device.device_id] for _, part in ranks for device in part.overlap]
    columns = record_columns(devices, "device_id", *_TIMES)
    parts = {
        name: np.array([getattr(device.parts, name) for _, device in devices], dtype=np.int64)
        for name in BusyParts.__dataclass_fields__
    }
    exposed_ns = parts["communication_only_ns"] + parts["communication_copy_ns"]
    windows = [device.exposed_window_ns or (None, None) for _, device in devices]
    of_copies = ExposedCopies.__dataclass_fields__
    return {
        **columns,
        **parts,
        "exposed_communication_ns": exposed_ns,
        "exposed_communication_pct": percent(exposed_ns, columns["communication_ns"]),
        "exposed_start_ns": [start_ns for start_ns, _ in windows],
        "exposed_end_ns": [end_ns for _, end_ns in windows],
        **{name: [getattr(some, name) for some in copies] for name in of_copies},
    }
