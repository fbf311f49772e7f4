"""Lanes: intervals of one lane nest or lie apart, and no lane more is used than has to be."""

from __future__ import annotations

import numpy as np
from effort import over_seeds

from nsys_llm.numeric.intervals import nesting_lanes


def _overlap_in_part(left, right):
    (start, end), (low, high) = sorted((left, right), key=lambda span: (span[0], -span[1]))
    return start < low < end < high


@over_seeds(range(200))
def test_no_two_of_one_lane_overlap_in_part(seed):
    rng = np.random.default_rng(seed)
    start_ns = rng.integers(0, 30, rng.integers(0, 14))
    end_ns = start_ns + rng.integers(0, 12, start_ns.size)
    lane = nesting_lanes(start_ns, end_ns)
    spans = list(zip(start_ns.tolist(), end_ns.tolist(), strict=True))
    for left, span in enumerate(spans):
        for right in range(left):
            assert lane[left] != lane[right] or not _overlap_in_part(span, spans[right])
    alone = not any(
        _overlap_in_part(span, other) for at, span in enumerate(spans) for other in spans[:at]
    )
    assert alone == (lane.max(initial=0) == 0)
    assert set(lane.tolist()) == set(range(int(lane.max(initial=-1)) + 1))


def test_a_chain_of_kernels_that_each_begin_early_needs_two_lanes():
    start_ns = np.arange(100) * 10
    assert nesting_lanes(start_ns, start_ns + 12).tolist() == [0, 1] * 50


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(1)
    start_ns = rng.permutation(50)
    end_ns = start_ns + rng.integers(1, 20, 50)
    order = np.argsort(start_ns)
    lane = nesting_lanes(start_ns, end_ns)
    assert (lane[order] == nesting_lanes(start_ns[order], end_ns[order])).all()
