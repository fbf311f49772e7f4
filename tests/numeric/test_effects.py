"""Count and per-call effects, by hand."""

import numpy as np
import pytest

from nsys_llm.numeric.effects import split_change


def split(*rows):
    """Return (change, count, per call) of rows (n0, t0, n1, t1)."""
    effects = split_change(
        *(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    )
    return list(zip(*(values.tolist() for values in vars(effects).values()), strict=True))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # Two calls of 3 ns, then four of 5: two more of 3, and four that are 2 longer.
        ((2, 6, 4, 20), (14, 6, 8)),
        # New and vanished are all count effect.
        ((0, 0, 3, 9), (9, 9, 0)),
        ((3, 9, 0, 0), (-9, -9, 0)),
        # A launch that began before the window has time in it, and is none of its launches.
        ((0, 5, 2, 8), (3, 3, 0)),
        # 1 more of 5 / 2: 2.5 rounds to 2; 1 more of 7 / 2: 3.5 rounds to 4.
        ((2, 5, 3, 5), (0, 2, -2)),
        ((2, 7, 3, 7), (0, 4, -4)),
        # One less of 5 / 2: -2.5 rounds to -2.
        ((2, 5, 1, 5), (0, -2, 2)),
        # More than a double holds, and a product of more than 64 bits.
        ((1 << 20, 3 << 52 | 1, 3 << 20, 9 << 52), ((6 << 52) - 1, (6 << 52) + 2, -3)),
    ],
)
def test_changes_split_by_hand(row, expected):
    assert split(row) == [expected]
