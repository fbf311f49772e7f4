"""Copies that bring a model to a GPU before its kernels: once, and no part of its work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from nsys_llm.numeric.gaps import start_order
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import DEVICE_TO_HOST, HOST_TO_DEVICE
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: Kernels begin where this share of their time is reached: libraries start one or two before.
_TRIFLE: Final = 0.01
#: From the first to the last copy a load is at least this share of the time before the kernels;
#: ours.
_LEAST_PART: Final = 0.5
#: And so many times the bytes of all later copies from or to the host: weights do not come back.
_LEAST_TIMES: Final = 10


def load_spans(trace: RankTrace, device_id: int) -> IntArray:
    """Return when a GPU's load was copied: shape (n, 2), sorted and disjoint; nothing without one.

    Before any filter. It has none if it ran no kernel.
    """
    nothing = np.empty((0, 2), dtype=np.int64)
    tables = {name: trace.unfiltered[name] for name in OP_TABLES if name in trace.unfiltered}
    copies = tables.get("memcpys")
    if copies is None or not len(copies):
        return nothing
    kind, here = copies["copy_kind"], copies["device_id"] == device_id
    from_host = here & (kind == HOST_TO_DEVICE)
    first_ns = _kernels_begin(tables, device_id) if from_host.any() else None
    if first_ns is None:
        return nothing
    host = from_host | here & (kind == DEVICE_TO_HOST)
    early = copies["start_ns"] < first_ns
    rows = np.flatnonzero(from_host & early)
    later_bytes = int(copies["size_bytes"][host & ~early].sum())
    if int(copies["size_bytes"][rows].sum()) < max(_LEAST_TIMES * later_bytes, 1):
        return nothing
    spans = union_intervals(copies["start_ns"][rows], np.minimum(copies["end_ns"][rows], first_ns))
    starts = (_of_device(op, device_id, "start_ns") for op in tables.values())
    before_ns = first_ns - min(int(some.min()) for some in starts if some.size)
    if not len(spans):  # copies of no length
        return nothing
    # Many small copies have gaps, in which the host reads what they bring.
    return spans if int(spans[-1, 1] - spans[0, 0]) >= _LEAST_PART * before_ns else nothing


def _kernels_begin(tables: Mapping[str, Table], device_id: int) -> int | None:
    """Return when a GPU's kernels begin, a trifle before left out; None where it ran none."""
    ran = [op for name in ("kernels", "graph_traces") if (op := tables.get(name)) is not None]
    start_ns, end_ns = (
        joined([_of_device(op, device_id, name) for op in ran]) for name in ("start_ns", "end_ns")
    )
    if not start_ns.size:
        return None
    time_ns, order = end_ns - start_ns, start_order(start_ns, lambda rows: (end_ns[rows],))
    if order is not None:
        start_ns, time_ns = start_ns[order], time_ns[order]
    reached_ns = np.cumsum(time_ns)
    return int(start_ns[np.searchsorted(reached_ns, _TRIFLE * reached_ns[-1])])


def _of_device(op: Table, device_id: int, name: str) -> IntArray:
    here = op["device_id"] == device_id
    return op[name] if here.all() else op[name][here]
