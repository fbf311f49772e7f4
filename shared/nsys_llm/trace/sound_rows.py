"""Which rows of GPU work have times that can be. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table, Trace
from nsys_llm.trace.rank_trace import LARGEST_TIME_NS, OP_TABLES, sane_times

#: Work that was queued ends after the last call and the end of the capture; ours, and far above
#: what any queue holds.
_QUEUED_NS: Final = 60_000_000_000


def latest_end_ns(trace: Trace) -> int:
    """Return the time after which no operation of a profile can end, on its clock.

    A minute after the end of the capture, where its length is recorded, else after the last API
    call.
    """
    lengths, calls = trace.tables.get("capture_spans"), trace.tables.get("api_calls")
    if lengths is not None and len(lengths):
        return int(lengths["duration_ns"].max()) + _QUEUED_NS
    if calls is None or not len(calls) or not {"start_ns", "end_ns"} <= set(calls.columns):
        return LARGEST_TIME_NS
    ends = calls["end_ns"]
    last_ns = int(ends.max(where=sane_times(calls["start_ns"], ends), initial=NULL_INT))
    return LARGEST_TIME_NS if last_ns == NULL_INT else last_ns + _QUEUED_NS


def recorded_ns(trace: Trace) -> tuple[int, int] | None:
    """Return when the first operation, call or range of a profile begins and the last one ends."""
    edges: list[tuple[int, int]] = []
    for name in (*OP_TABLES, "api_calls", "nvtx_events"):
        table = trace.tables.get(name, Table({}))
        if len(table) and {"start_ns", "end_ns"} <= set(table.columns):
            starts, ends = table["start_ns"], table["end_ns"]
            sane = sane_times(starts, ends) & (starts >= 0) & (ends > 0)
            if sane.any():
                edges.append((int(starts[sane].min()), int(ends[sane].max())))
    return (min(low for low, _ in edges), max(high for _, high in edges)) if edges else None


def sound_rows(op: Table, latest_ns: int) -> npt.NDArray[np.bool_]:
    """Return which operations have times and a device.

    Times count from the start of the session. A start and an end of 0 are CUPTI's word for times
    that were not collected.
    """
    starts, ends = op["start_ns"], op["end_ns"]
    sound = sane_times(starts, ends) & (starts >= 0) & (ends > 0) & (ends <= latest_ns)
    return np.asarray(sound & (op["device_id"] != NULL_INT))
