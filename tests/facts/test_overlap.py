"""What runs together on a device, against a count of single nanoseconds."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.facts.device.overlap import Spans, busy_parts, common_ns
from nsys_llm.numeric.intervals import union_intervals

HORIZON_NS = 40

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=6)


def spans(*pairs):
    """Return a union of (start, end) pairs."""
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return union_intervals(array[:, 0], array[:, 1])


@given(drawn=st.tuples(SPANS, SPANS, SPANS, SPANS))
def test_the_parts_equal_a_count_of_nanoseconds_and_add_up_to_busy_time(drawn):
    busy = np.zeros((4, HORIZON_NS), dtype=bool)
    for row, pairs in zip(busy, drawn, strict=True):
        for start, length in pairs:
            row[start : start + length] = True
    compute, communication, copies, graphs = busy
    parts = busy_parts(
        Spans(*(spans(*((start, start + length) for start, length in pairs)) for pairs in drawn))
    )
    masks = {
        "compute_only_ns": compute & ~communication & ~copies,
        "communication_only_ns": ~compute & communication & ~copies,
        "copy_only_ns": ~compute & ~communication & copies,
        "compute_communication_ns": compute & communication & ~copies,
        "compute_copy_ns": compute & ~communication & copies,
        "communication_copy_ns": ~compute & communication & copies,
        "compute_communication_copy_ns": compute & communication & copies,
    }
    counted = {name: int((mask & ~graphs).sum()) for name, mask in masks.items()}
    assert vars(parts) == {**counted, "graph_ns": int(graphs.sum())}
    assert sum(astuple(parts)) == busy.any(axis=0).sum()


def test_common_time_is_that_in_both():
    # 3-5 and 8-9.
    assert common_ns(spans((3, 9)), spans((0, 5), (8, 20))) == 3
    assert common_ns(spans(), spans((0, 5))) == 0
