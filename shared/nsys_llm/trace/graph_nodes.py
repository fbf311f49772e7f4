"""When and on which thread the nodes of CUDA graphs were captured. Pure.

A kernel of a graph names the node that ran. That one was instantiated from another, and so on back
to the node that a thread captured, inside whatever NVTX ranges were open there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.attribution import join_launches

#: Copies of copies of graphs; more in a row is a circle.
_MOST_COPIES: Final = 64


@dataclass(frozen=True)
class NodeCaptures:
    """The creations of the nodes of one process; all of shape (events,).

    Attributes:
        original_id: The one that it is a copy of; NULL_INT for a captured one.
    """

    node_id: IntArray
    original_id: IntArray
    start_ns: IntArray
    global_tid: IntArray

    @classmethod
    def of(cls, tables: Sequence[Table | None]) -> NodeCaptures:
        """Read the creations out of tables, of which some have none, or tell of other things."""
        names = ("graph_node_id", "original_graph_node_id", "start_ns", "global_tid")
        parts = [table.take(table["graph_node_id"] != NULL_INT) for table in tables if table]
        columns = [
            np.concatenate([np.empty(0, dtype=np.int64), *(part[name] for part in parts)])
            for name in names
        ]
        return cls(*columns)

    def captured(self, node_id: IntArray) -> tuple[IntArray, IntArray]:
        """Return when each node was first made, and by which thread.

        Returns:
            Shape (n,) each; NULL_INT where no creation of it is recorded.
        """
        event = join_launches(node_id, self.node_id, self.start_ns)
        if not self.node_id.size:
            return np.full_like(node_id, NULL_INT), np.full_like(node_id, NULL_INT)
        above = join_launches(self.original_id, self.node_id, self.start_ns)
        for _ in range(_MOST_COPIES):
            origin = np.where(event < 0, -1, above[event])
            if (origin < 0).all():
                break
            event = np.where(origin < 0, event, origin)
        known = event >= 0
        return (
            np.where(known, self.start_ns[event], NULL_INT),
            np.where(known, self.global_tid[event], NULL_INT),
        )


def is_graph_node(op: Table, rows: IntArray | slice = slice(None)) -> npt.NDArray[np.bool_]:
    """Return which operations are nodes of a CUDA graph; none where the table has no such column.

    Exports write NULL or 0 for an operation outside a graph, by table and version.
    """
    if "graph_node_id" not in op:
        return np.zeros(len(op), dtype=bool)[rows]
    node_id = op["graph_node_id"][rows]
    return np.asarray((node_id != NULL_INT) & (node_id != 0))
