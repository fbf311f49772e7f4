"""Replays of CUDA graphs of one rank. Pure numpy.

A replay is what one call launched of a graph on one device: nodes, or a whole graph that was traced
as one. A graph is known by its nodes, of which the smallest id stands for all; where no id is
recorded, by the names of its kernels in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct, distinct_rows, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import Rows, stacked
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.trace.coded_names import coded_names, text_of
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: Categories of kernels that have a block for each row of the batch, as bits: one alone may have as
#: many blocks as its author chose.
_BY_ROW: Final = {"norm": 1, "activation": 2}
_BOTH: Final = 3
#: Kernels of these names have a block for so many elements.
_BY_ELEMENT: Final = "triton_poi_"
NONE: Final = -1
_NEVER: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class GraphReplays(Rows):
    """Replays in the order of their calls; int64 arrays of shape (replays,).

    Attributes:
        graph: Which graph: the smallest id of its nodes, the id of one that was traced whole, or
            what its names add up to.
        start_ns: Of its first node, `end_ns` of the last to end; the profile's clock.
        nodes_n: Kernels, copies and fills; 0 for one that was traced whole.
        busy_ns: Time in which any of them runs.
        grid: Blocks of each kernel that has one for each row, if that is a single number for norms
            and activations; else -1.
    """

    graph: IntArray
    device_id: IntArray
    call: IntArray
    start_ns: IntArray
    end_ns: IntArray
    nodes_n: IntArray
    busy_ns: IntArray
    grid: IntArray

    def __len__(self) -> int:
        return int(self.call.size)


@dataclass(frozen=True)
class _ReplayNodes:
    """Operations of replays; arrays of shape (operations,)."""

    call: IntArray
    device_id: IntArray
    start_ns: IntArray
    end_ns: IntArray
    node: IntArray
    name: IntArray
    is_node: IntArray
    rows: IntArray
    by_row: IntArray


def graph_replays(trace: RankTrace, tables: Mapping[str, Table]) -> GraphReplays:
    """Return the replays of a rank whose calls are recorded."""
    calls = trace.tables.get("api_calls")
    parts: list[_ReplayNodes] = []
    if calls is not None and len(calls):
        ids = [
            key
            for key in distinct(calls["name_id"]).tolist()
            if classify_api(text_of(key, trace.strings)) == "graph_launch"
        ]
        launches = np.isin(calls["name_id"], ids) if ids else np.zeros(len(calls), dtype=bool)
        names = [name for name in OP_TABLES if name in tables and len(tables[name])]
        parts = [_nodes(trace, name, tables[name], launches) for name in names]
    return _replays(stacked(_ReplayNodes, parts))


def _nodes(
    trace: RankTrace, table: str, op: Table, launches: npt.NDArray[np.bool_]
) -> _ReplayNodes:
    call = op["launch_row"]
    rows = np.flatnonzero((call >= 0) & (is_graph_node(op) | launches[np.maximum(call, 0)]))
    none, zero = np.full(rows.size, NONE, dtype=np.int64), np.zeros(rows.size, dtype=np.int64)
    whole, kernel = table == "graph_traces", table == "kernels"
    node = none
    if whole and "graph_id" in op:
        node = op["graph_id"][rows]
    elif "graph_node_id" in op and not whole:
        node = op["graph_node_id"][rows]
    node = np.where((node == NULL_INT) | (node == 0), NONE, node)
    ids = op["demangled_name_id"][rows] if kernel else zero - len(table)
    blocks, by_row = _grids(trace, op, rows) if kernel and "grid_x" in op else (none, zero)
    return _ReplayNodes(
        call=call[rows].astype(np.int64),
        device_id=op["device_id"][rows],
        start_ns=op["start_ns"][rows],
        end_ns=op["end_ns"][rows],
        node=node,
        name=ids,
        is_node=zero + (not whole),
        rows=blocks,
        by_row=by_row,
    )


def _grids(trace: RankTrace, kernels: Table, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return blocks of kernels that have one for each row of a batch, else -1; and their bits."""
    names, code = coded_names(kernels["demangled_name_id"][rows], trace.strings)
    rules = rules_for(names)
    bits = [
        0 if _BY_ELEMENT in name else _BY_ROW.get(rules.classify(name).category, 0)
        for name in names
    ]
    grid = kernels["grid_x"][rows]
    by_row = np.where(grid > 0, np.array([*bits, 0], dtype=np.int64)[code], 0)
    return np.where(by_row > 0, grid, NONE), by_row


def _replays(nodes: _ReplayNodes) -> GraphReplays:
    if not nodes.call.size:
        return GraphReplays(*(nodes.call for _ in GraphReplays.__annotations__))
    _, code = distinct_rows([nodes.call, nodes.device_id])
    order = np.lexsort((nodes.start_ns, code))
    code = code[order]
    first = np.flatnonzero(np.diff(code, prepend=-1))

    def column(name: str) -> IntArray:
        return np.asarray(getattr(nodes, name)[order])

    def reduced(of: np.ufunc, values: IntArray) -> IntArray:
        return np.asarray(of.reduceat(values, first))

    starts, ends, node, rows = (column(name) for name in ("start_ns", "end_ns", "node", "rows"))
    least = reduced(np.minimum, node)
    place = np.arange(code.size) - first[code] + 1
    with np.errstate(over="ignore"):
        names = reduced(np.add, (column("name") + 1) * place * 0x9E3779B97F4A7C1)
    most_rows = reduced(np.maximum, rows)
    is_told = reduced(np.bitwise_or, column("by_row")) == _BOTH
    least_rows = reduced(np.minimum, np.where(rows < 0, _NEVER, rows))
    return GraphReplays(
        graph=np.where(least > 0, least, names),
        device_id=column("device_id")[first],
        call=column("call")[first],
        start_ns=starts[first],
        end_ns=reduced(np.maximum, ends),
        nodes_n=reduced(np.add, column("is_node")),
        busy_ns=_busy_ns(starts, ends, code, first),
        grid=np.where((least_rows == most_rows) & is_told, most_rows, NONE),
    )


def _busy_ns(starts: IntArray, ends: IntArray, code: IntArray, first: IntArray) -> IntArray:
    """Return the union of the operations of each replay; they are in order of code and start."""
    # One replay behind the other on a line of time: none reaches into another.
    latest = np.maximum.reduceat(ends, first)
    shift = np.concatenate(([0], np.cumsum(latest - starts[first])[:-1])) - starts[first]
    starts, ends = starts + shift[code], ends + shift[code]
    reach = np.maximum.accumulate(ends)
    before = np.concatenate((starts[:1], reach[:-1]))
    added = reach - np.maximum(before, np.minimum(starts, reach))
    return summed(code, added, first.size)
