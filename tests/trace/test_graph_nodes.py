"""Where nodes of CUDA graphs were captured."""

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table
from nsys_llm.trace.graph_nodes import NodeCaptures, is_graph_node


def captures(*rows):
    """Return creations of (node, original, start, thread)."""
    names = ("graph_node_id", "original_graph_node_id", "start_ns", "global_tid")
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return NodeCaptures.of([None, Table(dict(zip(names, columns, strict=True)))])


def captured(graph_captures, *nodes):
    at_ns, tid = graph_captures.captured(np.array(nodes, dtype=np.int64))
    return list(zip(at_ns.tolist(), tid.tolist(), strict=True))


def test_copies_lead_back_to_the_node_that_was_captured():
    graph_captures = captures((1, NULL_INT, 5, 70), (21, 1, 8, 71), (31, 21, 9, 72))
    assert captured(graph_captures, 31, 21, 1) == [(5, 70)] * 3


def test_a_node_that_nobody_recorded_is_not_known():
    graph_captures = captures((1, NULL_INT, 5, 70), (2, 99, 6, 71))
    assert captured(graph_captures, 7, 2) == [(NULL_INT, NULL_INT), (6, 71)]
    assert captured(captures(), 7) == [(NULL_INT, NULL_INT)]


def test_rows_of_other_things_are_left_out():
    # Newer exports have the creation of graphs in the table of that name.
    assert captures((NULL_INT, NULL_INT, 3, 70)).node_id.size == 0


def test_a_circle_ends():
    graph_captures = captures((1, 2, 5, 70), (2, 1, 6, 71))
    assert captured(graph_captures, 1)[0] in [(5, 70), (6, 71)]


def test_operations_without_a_node_are_none():
    ids = np.array([NULL_INT, 0, 1, -1, 2**62], dtype=np.int64)
    op = Table({"graph_node_id": ids})
    assert is_graph_node(op).tolist() == [False, False, True, True, True]
    assert is_graph_node(op, np.array([3, 1])).tolist() == [True, False]


def test_of_a_table_without_nodes_nothing_is_one():
    op = Table({"start_ns": np.arange(3)})
    assert is_graph_node(op).tolist() == [False] * 3
    assert is_graph_node(op, np.array([2])).tolist() == [False]
