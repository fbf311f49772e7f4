"""The timeline: the first GPU operations of each device, of all kinds, in order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.report.columns import Columns, record_columns
from nsys_llm.taxonomy.cuda_codes import copy_kind_name, memory_kind_name
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace


@dataclass(frozen=True)
class TimelineRow:
    """One operation. See the table `timeline` of the manifest; None where it is not known."""

    device_id: int
    start_ns: int
    duration_ns: int
    gap_before_ns: int | None
    op: str
    name: str
    stream_id: int | None
    graph_node: bool
    size_bytes: int | None
    memory: str | None


def map_timeline(
    trace: RankTrace, options: Mapping[str, Any], shown: Sequence[str], name: IntArray
) -> tuple[TimelineRow, ...]:
    """Return the first operations of each device that start in the windows.

    Args:
        options: timeline is how many operations a device.
        name: Shape (kernels,), each kernel's position in `shown`.
    """
    most = options.get("timeline")
    if not most:
        return ()
    return tuple(
        row for device in trace.device_ids for row in _device_rows(trace, device, most, shown, name)
    )


def timeline_columns(rows: Sequence[tuple[Rank, TimelineRow]]) -> Columns:
    """Return the table timeline."""
    return record_columns(rows, *TimelineRow.__dataclass_fields__)


def _device_rows(
    trace: RankTrace, device: int, most: int, shown: Sequence[str], name: IntArray
) -> list[TimelineRow]:
    tables = [item for item in OP_TABLES if item in trace.tables]
    table_rows = []
    for position, table in enumerate(tables):
        rows = trace.tables[table]
        selected = np.flatnonzero((rows["device_id"] == device) & trace.starts_inside(rows))
        selected = selected[np.argsort(rows["start_ns"][selected], kind="stable")]
        if selected.size > most:
            # All that start with the last one belong to the choice, which the ends decide.
            last_ns = rows["start_ns"][selected[most - 1]]
            selected = selected[
                : np.searchsorted(rows["start_ns"][selected], last_ns, side="right")
            ]
        table_rows.append((np.full(selected.size, position), selected))
    code, row = (np.concatenate(parts) for parts in zip(*table_rows, strict=True))
    chosen = [
        trace.tables[table].take(selected)
        for table, (_, selected) in zip(tables, table_rows, strict=True)
    ]
    starts = np.concatenate([item["start_ns"] for item in chosen])
    ends = np.concatenate([item["end_ns"] for item in chosen])
    order = np.lexsort((row, code, ends, starts))[:most]
    gaps = _gaps_before(trace, device, starts[order])
    return [
        _row(trace, device, tables[code[at]], int(row[at]), gap, shown, name)
        for at, gap in zip(order.tolist(), gaps, strict=True)
    ]


def _gaps_before(trace: RankTrace, device: int, starts: IntArray) -> list[int | None]:
    """Return the idle time of the device before each start, of all that runs, filters or not."""
    ops = [op.take(op["device_id"] == device) for op in trace.unfiltered.values()]
    all_starts = np.concatenate([op["start_ns"] for op in ops])
    all_ends = np.concatenate([op["end_ns"] for op in ops])
    order = np.argsort(all_starts, kind="stable")
    reach = np.maximum.accumulate(all_ends[order])
    before_n = np.searchsorted(all_starts[order], starts, side="left")
    gaps: list[int | None] = []
    for i, (start, n) in enumerate(zip(starts.tolist(), before_n.tolist(), strict=True)):
        if i and starts[i - 1] == start:
            gaps.append(0)  # the one beside it ended the gap
        else:
            gaps.append(max(0, start - int(reach[n - 1])) if n else None)
    return gaps


def _row(
    trace: RankTrace,
    device: int,
    table: str,
    row: int,
    gap_ns: int | None,
    shown: Sequence[str],
    name: IntArray,
) -> TimelineRow:
    rows = trace.tables[table]
    start_ns = int(rows["start_ns"][row])
    return TimelineRow(
        device_id=device,
        start_ns=start_ns,
        duration_ns=int(rows["end_ns"][row]) - start_ns,
        gap_before_ns=gap_ns,
        op=OP_TABLES[table],
        name=shown[name[row]] if table == "kernels" else _operation_name(table, rows, row),
        stream_id=_known(rows, "stream_id", row),
        graph_node=bool(is_graph_node(rows, np.array([row]))[0]),
        size_bytes=_known(rows, "size_bytes", row),
        memory=_memory(rows, row),
    )


def _operation_name(table: str, rows: Table, row: int) -> str:
    if table == "memcpys":
        kind = _known(rows, "copy_kind", row)
        return copy_kind_name(0 if kind is None else kind)
    if table == "graph_traces":
        graph = _known(rows, "graph_id", row)
        return "graph" if graph is None else f"graph {graph}"
    return OP_TABLES[table]


def _memory(rows: Table, row: int) -> str | None:
    """Return the kinds of memory that a copy goes from and to."""
    kinds = [_known(rows, name, row) for name in ("source_memory_kind", "target_memory_kind")]
    if None in kinds:
        return None
    return " to ".join(memory_kind_name(kind) for kind in kinds if kind is not None)


def _known(rows: Table, column: str, row: int) -> int | None:
    if column not in rows:
        return None
    value = int(rows[column][row])
    return None if value == NULL_INT else value
