"""Time cut into parts: no instant is lost, and no part is empty."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.numeric.time_bins import bin_edges, log_edges, span_quarters


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


def test_log_edges_are_whole_parts_of_fourth_roots_each_once():
    # 2^(k/4): 1, 1.19, 1.41, 1.68, 2, 2.38, 2.83, 3.36, 4, 4.76, 5.66, 6.73, 8, 9.51, 11.3, 13.5
    assert log_edges(13).tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 16]
    assert log_edges(0).tolist() == [0, 1]


def test_log_edges_are_exact_where_floats_are_not():
    edges = log_edges(1 << 53)
    assert edges[-1] > 1 << 53
    assert (np.diff(edges) > 0).all()
    # From 16 on every k has an edge of its own: the last is 2^(213/4), about 1.1e16.
    for k, edge in enumerate(edges[edges >= 16].tolist(), start=16):
        assert edge**4 <= 1 << k < (edge + 1) ** 4
