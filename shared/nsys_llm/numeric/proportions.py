"""Intervals of shares that were counted. Pure numpy."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

_Z_95: Final = 1.959963984540054

Shares = npt.NDArray[np.float64]


def wilson_pct(count: IntArray, of_n: IntArray) -> tuple[Shares, Shares]:
    """Return the 95 % interval of shares, in percent, by Wilson's score.

    Unlike the usual one it lies within 0 and 100 %, and holds where few or all were counted.
    Wilson, E. B. (1927), Probable inference, the law of succession, and statistical inference.

    Args:
        count: Shape (n,), of `of_n` each.
        of_n: Shape (n,), at least 1.
    """
    share, z2 = count / of_n, _Z_95**2
    middle = share + z2 / (2 * of_n)
    half = _Z_95 * np.sqrt(share * (1 - share) / of_n + z2 / (4.0 * of_n * of_n))
    low, high = (middle - half) / (1 + z2 / of_n), (middle + half) / (1 + z2 / of_n)
    low = np.where(count == 0, 0.0, low)  # exactly, whatever the rounding
    return 100.0 * low, 100.0 * np.where(count == of_n, 1.0, high)
