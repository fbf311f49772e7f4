"""What a change of a sum is made of: more calls, or longer ones. Pure, exact integers.

    change = t1 - t0 = count effect + per-call effect
    count effect = (n1 - n0) * t0 / n0, rounded half to even
    per-call effect = the rest

What is new or has vanished is all count effect. The parts of one name add up to its change exactly,
so sums of them over any set of names do, too. A split by something finer, as by configuration, has
another mean for each row, and so other parts: it is a table of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from nsys_llm.numeric.intervals import IntArray


@dataclass(frozen=True)
class Effects:
    """Changes and their parts; all of shape (rows,), int64. Positive means more or longer."""

    change: IntArray
    count: IntArray
    per_call: IntArray


def split_change(calls0: IntArray, total0: IntArray, calls1: IntArray, total1: IntArray) -> Effects:
    """Split changes of sums into the effect of the number of calls and that of their length.

    Args:
        calls0: Shape (rows,), as all, calls in the baseline; `calls1` in the input.
        total0: Their sum, in any unit; `total1` likewise.
    """
    change = total1 - total0
    on_both = (calls0 > 0) & (calls1 > 0)
    # In Python's integers: a product of a count and a sum may outgrow 64 bits.
    columns = (values.tolist() for values in (calls0, total0, calls1, on_both, change))
    parts = [
        round(Fraction((n1 - n0) * t0, n0)) if both else whole
        for n0, t0, n1, both, whole in zip(*columns, strict=True)
    ]
    count = np.array(parts, dtype=np.int64)
    return Effects(change, count, change - count)
