"""Time cut into parts: no instant is lost, and no part is empty."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.numeric.intervals import bin_edges, span_quarters


def array(values):
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("start", "end", "most", "edges"),
    [
        (10, 20, 2, [10, 15, 20]),
        (10, 17, 3, [10, 12, 14, 17]),  # 7 = 2 + 2 + 3
        (10, 12, 5, [10, 11, 12]),  # no part is empty
        (10, 10, 5, [10, 10]),
        (10, 5, 5, [10, 10]),
    ],
)
def test_a_span_is_cut_into_parts_that_differ_by_one_ns_at_most(start, end, most, edges):
    assert bin_edges(start, end, most).tolist() == edges


def test_the_longest_capture_is_cut_without_an_overflow():
    edges = bin_edges(-(1 << 53), 1 << 53, 200)
    assert (edges[0], edges[-1], len(edges)) == (-(1 << 53), 1 << 53, 201)
    assert set(np.diff(edges).tolist()) == {(1 << 54) // 200, (1 << 54) // 200 + 1}


def test_quarters_end_at_the_end_of_the_span():
    assert span_quarters(10, 18).tolist() == [12, 14, 16, 18]
    # A span too short for four parts is taken as 4 ns.
    assert span_quarters(10, 10).tolist() == [11, 12, 13, 14]
