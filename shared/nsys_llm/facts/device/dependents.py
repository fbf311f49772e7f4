"""Kernels that begin before the one ahead on their stream has ended: programmatic dependent launch.

The same two kernels do so again and again; a single overlap is noise of a clock. Pure numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.gaps import start_order
from nsys_llm.numeric.grouping import (
    distinct_codes,
    distinct_rows,
    first_of_each,
    is_constant,
    order_by_code,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.rank_trace import RankTrace

#: Two kernels overlap again and again from so many times on, and from this share of all times that
#: one follows the other, in percent; ours.
_LEAST_N: Final = 2
_LEAST_PCT: Final = 10

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Dependents:
    """Launches that began early; arrays of shape (launches,).

    Attributes:
        row: Its row in the table of kernels before any filter.
        pair: Code of the two kernels, by their names.
        hidden_ns: Time that it shares with the kernel ahead.
    """

    row: IntArray
    pair: IntArray
    hidden_ns: IntArray

    def early_ns(self, rows_n: int) -> IntArray:
        """Return by how much each of the first rows began early, shape (rows_n,); mostly 0.

        What starts so much later has no time that is the earlier kernel's.
        """
        early_ns = np.zeros(rows_n, dtype=np.int64)
        early_ns[self.row] = self.hidden_ns
        return early_ns


def dependents(trace: RankTrace) -> Dependents:
    """Return the launches of a rank that began early, whatever the filters leave."""
    none = np.empty(0, dtype=np.int64)
    kernels = trace.unfiltered["kernels"]
    ahead, row = _neighbors(kernels)
    starts, ends = kernels["start_ns"], kernels["end_ns"]
    early = starts[row] < ends[ahead]
    if not early.any():
        return Dependents(none, none, none)
    early &= _bound(kernels, ahead, row)
    names, name = distinct_codes(kernels["demangled_name_id"])
    used, pair = distinct_codes(name[ahead] * names.size + name[row])
    early_n, all_n = (np.bincount(pair[some], minlength=used.size) for some in (early, slice(None)))
    again = (early_n >= _LEAST_N) & (100 * early_n >= _LEAST_PCT * all_n)
    chosen = np.flatnonzero(early & again[pair])
    ahead, row, pair = ahead[chosen], row[chosen], pair[chosen]
    return Dependents(row, pair, np.minimum(ends[ahead], ends[row]) - starts[row])


def _neighbors(kernels: Table) -> tuple[IntArray, IntArray]:
    """Return the rows of kernels of which one follows the other on a stream; none without overlap.

    Both of shape (pairs,).
    """
    none = np.empty(0, dtype=np.int64)
    starts, ends = kernels["start_ns"], kernels["end_ns"]
    if "stream_id" not in kernels or starts.size < _LEAST_N:
        return none, none
    order = start_order(starts, lambda some: (ends[some],))
    rows = np.arange(starts.size) if order is None else order
    reach = np.maximum.accumulate(ends[rows])
    if (starts[rows[1:]] >= reach[:-1]).all():
        return none, none
    _, stream = distinct_rows([kernels["stream_id"], kernels["device_id"]])
    if not is_constant(stream):
        rows = rows[order_by_code(stream[rows])]
    ahead, row = rows[:-1], rows[1:]
    same = stream[ahead] == stream[row]
    return ahead[same], row[same]


def _bound(kernels: Table, ahead: IntArray, row: IntArray) -> _Mask:
    """Return which kernels may depend on the one ahead of them, both of shape (pairs,).

    Of nodes of a graph, those that follow the same node in each of its replays: else they are on
    branches that run beside each other.
    """
    node = is_graph_node(kernels)
    if not node.any():
        return np.ones(row.size, dtype=bool)
    inside = node[row] & node[ahead] & (kernels["launch_row"][row] == kernels["launch_row"][ahead])
    before = np.where(inside, kernels["graph_node_id"][ahead], -1)
    ids, code = distinct_codes(kernels["graph_node_id"][row])
    usual = first_of_each(code, before, node[row], ids.size, -1)
    moves = np.zeros(ids.size, dtype=bool)
    moves[code[node[row] & (before != usual[code])]] = True
    return np.where(node[row], inside & ~moves[code], ~node[ahead])
