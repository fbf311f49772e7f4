"""The NVTX range of every GPU operation of one process. Pure.

An operation belongs to the range that began last of those open when and where it was launched:
push/pop ranges of the launching thread; where none is open there, start/end ranges, which hold the
launches of any thread of the process. Where that finds nothing, two things are known to stand for
the launch, and are told apart by their method: a node of a CUDA graph was captured inside a range;
or the launching thread worked for another one, as PyTorch's autograd threads do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nvtx.delegated_launches import delegated
from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.numeric.blocks import blocks, gathered
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.graph_nodes import NodeCaptures, is_graph_node

#: How the range of an operation was found, by code; the last two found none.
METHODS: Final = (
    "launch",
    "start_end",
    "graph_launch",
    "graph_capture",
    "delegated",
    "no_range",
    "no_api",
)
LAUNCH, START_END, GRAPH_LAUNCH, GRAPH_CAPTURE, DELEGATED, NO_RANGE, NO_API = range(len(METHODS))

#: Tables of what a thread launches that computes, and not only moves data.
_COMPUTING: Final = ("kernels", "graph_traces")

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class AttributedOps:
    """Operations of some tables, one table behind the other; arrays of shape (operations,).

    Attributes:
        launch_row: Row of the API call, int32; -1 without one.
        calls_ns: Shape (calls,), starts of the API calls.
        piece: The innermost range, position in the tree, int32; -1 without one.
        captured_ns: When a node was captured in its piece, NULL_INT for others; None for no nodes.
    """

    start_ns: IntArray
    end_ns: IntArray
    launch_row: npt.NDArray[np.int32]
    calls_ns: IntArray
    piece: npt.NDArray[np.int32]
    captured_ns: IntArray | None
    method: npt.NDArray[np.int8]

    def take(self, rows: _Mask) -> AttributedOps:
        """Return the operations that a mask selects."""
        return AttributedOps(
            self.start_ns[rows],
            self.end_ns[rows],
            self.launch_row[rows],
            self.calls_ns,
            self.piece[rows],
            None if self.captured_ns is None else self.captured_ns[rows],
            self.method[rows],
        )

    def launched_ns(self, rows: IntArray | slice) -> IntArray:
        """Return the start of the API call of some operations; NULL_INT without one."""
        row = self.launch_row[rows]
        if not self.calls_ns.size:
            return np.full(row.shape, NULL_INT, dtype=np.int64)
        return np.where(row >= 0, self.calls_ns[row], NULL_INT)

    def evidence_ns(self, rows: IntArray) -> IntArray:
        """Return when the piece of some was open: at the launch, or at the capture of a node."""
        launched = self.launched_ns(rows)
        if self.captured_ns is None:
            return launched
        captured = self.captured_ns[rows]
        return np.where(captured == NULL_INT, launched, captured)


def attribute(
    ops: Mapping[str, Table],
    calls: Table | None,
    tree: NvtxTree,
    captures: NodeCaptures,
    *,
    capture_first: bool = False,
) -> AttributedOps:
    """Find the range of every operation.

    Args:
        ops: Tables of operations of one process, with start_ns, end_ns, launch_row and, where they
            may be nodes of graphs, graph_node_id; whole graphs are the table graph_traces.
        calls: API calls with start_ns and global_tid, in which launch_row counts.
        capture_first: Whether the capture of a node says more than the launch of its graph.
    """
    starts, ends = (_joined([op[name] for op in ops.values()]) for name in ("start_ns", "end_ns"))
    row = _joined([op["launch_row"].astype(np.int32) for op in ops.values()])
    known_calls = calls is not None and len(calls) > 0
    attributed = AttributedOps(
        start_ns=starts,
        end_ns=ends,
        launch_row=row,
        calls_ns=calls["start_ns"] if calls is not None else np.empty(0, dtype=np.int64),
        piece=np.full(row.shape, -1, dtype=np.int32),
        captured_ns=np.full(row.shape, NULL_INT) if known_calls and captures.node_id.size else None,
        method=np.full(row.shape, NO_API, dtype=np.int8),
    )
    if calls is None or not len(calls):
        return attributed
    _use_launches(attributed, tree, calls["global_tid"])
    method = attributed.method
    rest = np.flatnonzero(method == NO_RANGE)
    _use(attributed, rest, _free(tree, attributed.launched_ns(rest)), START_END)
    nodes = _joined([is_graph_node(op) for op in ops.values()])
    whole = _joined([np.full(len(op), name == "graph_traces") for name, op in ops.items()])
    method[(nodes | whole) & (method < GRAPH_LAUNCH)] = GRAPH_LAUNCH
    if captures.node_id.size:
        rows = np.flatnonzero(nodes & (row >= 0))
        _use_captures(attributed, tree, captures, rows, _node_ids(ops), capture_first)
    rest = np.flatnonzero(method == NO_RANGE)
    if rest.size:
        kernels = [op["launch_row"] for name, op in ops.items() if name in _COMPUTING]
        given = delegated(tree, calls, row[rest].astype(np.int64), _joined(kernels))
        _use(attributed, rest, given, DELEGATED)
    return attributed


def _use_launches(attributed: AttributedOps, tree: NvtxTree, global_tid: IntArray) -> None:
    """Set the range that was open on the launching thread; `global_tid` is that of the calls."""
    tids, code = distinct_codes(global_tid)
    of_call = gathered(tree.thread_codes(tids).astype(np.int32), code)
    del code
    for block in blocks(attributed.launch_row.size):
        row = attributed.launch_row[block]
        known = row >= 0
        thread = np.where(known, of_call[row], -1)
        piece = tree.innermost(thread, attributed.launched_ns(block))
        attributed.piece[block] = piece
        attributed.method[block] = np.where(known, np.where(piece < 0, NO_RANGE, LAUNCH), NO_API)


def _use(attributed: AttributedOps, rows: IntArray, piece: IntArray, method: int) -> None:
    got = piece >= 0
    attributed.piece[rows[got]] = piece[got]
    attributed.method[rows[got]] = method


def _free(tree: NvtxTree, at_ns: IntArray) -> IntArray:
    return tree.innermost(np.full(at_ns.shape, tree.free, dtype=np.int64), at_ns)


def _use_captures(
    attributed: AttributedOps,
    tree: NvtxTree,
    captures: NodeCaptures,
    rows: IntArray,
    node_id: IntArray,
    capture_first: bool,
) -> None:
    """Take the range in which a node was captured, where its launch lies in none, or first."""
    if not capture_first:
        rows = rows[attributed.method[rows] == NO_RANGE]
    # A graph runs many times: each node is looked up once.
    used, code = distinct_codes(node_id[rows])
    at_ns, tid = captures.captured(used)
    piece = tree.innermost(tree.thread_codes(tid), at_ns)
    recorded = (at_ns != NULL_INT) & (piece < 0)
    piece[recorded] = _free(tree, at_ns[recorded])
    of_row = piece[code]
    got = of_row >= 0
    if attributed.captured_ns is not None:
        attributed.captured_ns[rows[got]] = at_ns[code][got]
    _use(attributed, rows, of_row, GRAPH_CAPTURE)


def _node_ids(ops: Mapping[str, Table]) -> IntArray:
    """Return which node of a graph each operation is; NULL_INT where its table has none."""
    tables = ops.values()
    return _joined([op.columns.get("graph_node_id", np.full(len(op), NULL_INT)) for op in tables])


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    filled = [part for part in parts if part.size]
    if len(filled) == 1:
        return filled[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
