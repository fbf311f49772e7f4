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
from nsys_llm.taxonomy.cuda_codes import copy_kind_name
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
    size_bytes: int | None


def map_timeline(
    trace: RankTrace, options: Mapping[str, Any], shown: Sequence[str], name: IntArray
) -> tuple[TimelineRow, ...]:
    """Return the first operations of each device that start in the windows.

    Args:
        options: timeline is how many operations a device.
        name: Shape (kernels,), each kernel's position in `shown`.
    """
    if not options.get("timeline"):
        return ()
    rows = []
    for device in trace.device_ids:
        first = _first_ops(trace, device, options["timeline"])
        gaps = _gaps_before(trace, device, [start_ns for start_ns, *_ in first])
        for (start_ns, end_ns, place, row), gap_ns in zip(first, gaps, strict=True):
            table = [*OP_TABLES][place]
            op = trace.tables[table].take(np.array([row]))
            rows.append(
                TimelineRow(
                    device_id=device,
                    start_ns=start_ns,
                    duration_ns=end_ns - start_ns,
                    gap_before_ns=gap_ns,
                    op=OP_TABLES[table],
                    name=shown[name[row]] if table == "kernels" else _operation_name(table, op),
                    stream_id=_known(op, "stream_id"),
                    size_bytes=_known(op, "size_bytes"),
                )
            )
    return tuple(rows)


def timeline_columns(rows: Sequence[tuple[Rank, TimelineRow]]) -> Columns:
    """Return the table timeline."""
    return record_columns(rows, *TimelineRow.__dataclass_fields__)


def _first_ops(trace: RankTrace, device: int, most: int) -> list[tuple[int, ...]]:
    """Return start, end, place of the table in `OP_TABLES`, and row of the first operations."""
    found: list[tuple[int, ...]] = []
    for place, table in enumerate(OP_TABLES):
        if table in trace.tables:
            op = trace.tables[table]
            rows = np.flatnonzero((op["device_id"] == device) & trace.starts_inside(op))
            starts, ends = op["start_ns"][rows], op["end_ns"][rows]
            first = np.lexsort((ends, starts))[:most]
            columns = starts[first], ends[first], np.full(first.size, place), rows[first]
            found += zip(*(column.tolist() for column in columns), strict=True)
    return sorted(found)[:most]


def _gaps_before(trace: RankTrace, device: int, starts: Sequence[int]) -> list[int | None]:
    """Return the idle time of the device before each start, of all that runs, filters or not."""
    ops = [op.take(op["device_id"] == device) for op in trace.unfiltered.values()]
    all_starts = np.concatenate([op["start_ns"] for op in ops])
    order = np.argsort(all_starts, kind="stable")
    reach = np.maximum.accumulate(np.concatenate([op["end_ns"] for op in ops])[order])
    before_n = np.searchsorted(all_starts[order], starts, side="left").tolist()
    gaps: list[int | None] = []
    for i, (start, n) in enumerate(zip(starts, before_n, strict=True)):
        if i and starts[i - 1] == start:
            gaps.append(0)  # the one beside it ended the gap
        else:
            gaps.append(max(0, start - int(reach[n - 1])) if n else None)
    return gaps


def _operation_name(table: str, op: Table) -> str:
    if table == "memcpys":
        return copy_kind_name(_known(op, "copy_kind") or 0)
    graph = _known(op, "graph_id") if table == "graph_traces" else None
    return OP_TABLES[table] if graph is None else f"graph {graph}"


def _known(op: Table, column: str) -> int | None:
    """Return a value of a table of one row; None where it is not recorded."""
    value = int(op[column][0]) if column in op else NULL_INT
    return None if value == NULL_INT else value
