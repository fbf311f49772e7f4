"""Least squares that few outliers do not bend, and what is certain of it. Pure numpy.

Huber's weights (1.345 standard deviations, from the median absolute deviation), and intervals of
95 % from the sandwich of Huber and White with each residual over what its own row leaves of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.two_samples import scaled_mad, student_quantile

FloatArray = npt.NDArray[np.float64]

_TUNING: Final = 1.345
_OUTLIER: Final = 3.0
_ROUNDS: Final = 50
_CONFIDENCE: Final = 0.975
#: Times are whole ns: what is left of them is at least so much.
_LEAST_SIGMA: Final = 0.3
#: Columns of equal length are as good as dependent from this condition number on (Belsley).
MOST_CONDITION: Final = 30.0


@dataclass(frozen=True)
class Fit:
    """Coefficients of a fit; arrays of shape (columns,).

    Attributes:
        value: Of each column.
        low: Lower end of its interval of 95 %.
        high: Upper end.
        sigma: Spread of what the fit leaves, without the outliers.
        outliers_n: Rows that are more than three times that away.
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    sigma: float
    outliers_n: int


def robust_fit(columns: FloatArray, values: FloatArray) -> Fit:
    """Fit values by columns.

    Args:
        columns: Shape (rows, columns), independent, more rows than columns.
        values: Shape (rows,).
    """
    scale = np.abs(columns).max(axis=0)
    scaled = columns / scale
    weight = np.ones(values.size)
    value = np.zeros(scaled.shape[1])
    rest, sigma = values, _LEAST_SIGMA
    for _ in range(_ROUNDS):
        root = np.sqrt(weight)[:, None]
        then = np.linalg.lstsq(scaled * root, values * root[:, 0], rcond=None)[0]
        rest = values - scaled @ then
        sigma = max(scaled_mad(rest), _LEAST_SIGMA)
        weight = np.minimum(1.0, _TUNING * sigma / np.maximum(np.abs(rest), 1e-300))
        near = np.abs(then - value).max() <= 1e-10 * np.abs(then).max()
        value = then
        if near:
            break
    half = _half_widths(scaled, rest, sigma)
    return Fit(
        value / scale,
        (value - half) / scale,
        (value + half) / scale,
        sigma,
        int((np.abs(rest) > _OUTLIER * sigma).sum()),
    )


def _half_widths(columns: FloatArray, rest: FloatArray, sigma: float) -> FloatArray:
    limit = _TUNING * sigma
    inner = np.linalg.pinv((columns * (np.abs(rest) <= limit)[:, None]).T @ columns)
    left = 1.0 - np.minimum(np.einsum("ij,jk,ik->i", columns, inner, columns), 0.9)
    pulled = columns * (np.clip(rest, -limit, limit) / left)[:, None]
    variance = np.diag(inner @ (pulled.T @ pulled) @ inner)
    # Whole ns are never more exact than that.
    rounded = _LEAST_SIGMA**2 * np.diag(np.linalg.pinv(columns.T @ columns))
    variance = np.maximum(variance, rounded)
    freedom = columns.shape[0] - columns.shape[1]
    return student_quantile(_CONFIDENCE, freedom) * np.sqrt(variance)


def independent(columns: FloatArray) -> list[list[int]]:
    """Return columns in groups of which each stands for one: those that others nearly are.

    Args:
        columns: Shape (rows, columns), none of them constant; a constant one is always beside them.

    Returns:
        Positions; the first of each group stands for all.
    """
    apart = columns - columns.mean(axis=0)
    unit = apart / np.linalg.norm(apart, axis=0)
    groups = [[place] for place in range(columns.shape[1])]
    while len(groups) > 1:
        some = unit[:, [group[0] for group in groups]]
        if np.linalg.cond(some) <= MOST_CONDITION:
            break
        cosines = np.abs(np.triu(some.T @ some, 1))
        into, out = np.unravel_index(int(cosines.argmax()), cosines.shape)
        groups[int(into)] += groups.pop(int(out))
    return groups
