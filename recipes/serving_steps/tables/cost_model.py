"""What a step costs by its requests, tokens and contexts: the tables `cost_model` and `padding`.

Least squares that few outliers do not bend: Huber's weights (1.345 standard deviations, from the
median absolute deviation), and intervals of 95 % from the sandwich of Huber and White with each
residual over what its own row leaves of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.serving.rank import ServedSteps
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.two_samples import scaled_mad, student_quantile
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.phase_maps import DECODE
from nsys_llm.trace.identity import Rank

from .batches import Row

FloatArray = npt.NDArray[np.float64]

#: What a step costs besides.
BASE: Final = "base"
#: Tokens that requests generate, or verify.
GEN_TOKENS: Final = "gen_tokens"
#: In this order; of two that say nearly the same, the first stands for both.
_TERMS: Final = (GEN_TOKENS, "ctx_tokens", "g_sk", "c_sqsk")
#: Rows of the graph that a step replays.
_SIZE: Final = "graph_size"
_LEAST_VALUES: Final = 3
_LEAST_STEPS: Final = 10
#: Spread of what the model leaves, of the median step, in percent.
_MOST_SIGMA_PCT: Final = 10.0
#: Why there is no model.
FEW_STEPS: Final = "few steps"
SCATTERED: Final = "scattered"
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
        low: Lower end of the interval of 95 % of `value`; `high` its upper end.
        sigma: Spread of what the fit leaves, without the outliers.
        outliers_n: Rows that are more than three times that away.
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    sigma: float
    outliers_n: int


def model_rows(rank: Rank, served: ServedSteps, phase: str) -> list[Row]:
    """Return the rows of `cost_model` of a phase; none where names do not tell."""
    steps = _steps_of(served, phase)
    if not steps.size:
        return []
    terms, constant, fit = fitted(served, steps)
    of_phase: Row = {
        **of_rank(rank),
        "phase": phase,
        "sigma_ns": None if fit is None else fit.sigma,
        "steps_n": steps.size,
        "left_out": ", ".join(constant) or None,
    }
    if fit is None:
        return [of_phase | {"reason": FEW_STEPS}]
    if 100 * fit.sigma > _MOST_SIGMA_PCT * float(np.median(served.times.cost_ns[steps])):
        return [of_phase | {"reason": SCATTERED}]
    of_phase["outliers_n"] = fit.outliers_n
    values = zip(terms, fit.value.tolist(), fit.low.tolist(), fit.high.tolist(), strict=True)
    names = ("term", "value_ns", "low_ns", "high_ns")
    return [of_phase | dict(zip(names, row, strict=True)) for row in values]


def _steps_of(served: ServedSteps, phase: str) -> IntArray:
    is_phase = np.array([item == phase for item in served.batches.phase], dtype=bool)
    return np.flatnonzero(served.times.counted & is_phase)


def fitted(
    served: ServedSteps, steps: IntArray, size: IntArray | None = None
) -> tuple[tuple[str, ...], tuple[str, ...], Fit | None]:
    """Fit the cost of some steps by the fields that are known and vary.

    Args:
        size: Shape (steps,), rows of their graphs, which stand for tokens that generate.

    Returns:
        Names of the coefficients, of which one may stand for several fields; fields with too few
        values; and the fit, None for too few steps.
    """
    columns: dict[str, IntArray] = {} if size is None else {_SIZE: size}
    for term in _TERMS[1:] if size is not None else _TERMS:
        values = served.batches.field(term)[steps]
        if term == _TERMS[0] and ((values == NULL_INT).any() or served.batches.tokens_derived):
            term = "gen_reqs"
            values = served.batches.field(term)[steps]
        if not (values == NULL_INT).any():
            columns[term] = values
    least_n = {name: 2 if name == _SIZE else _LEAST_VALUES for name in columns}
    varied = {
        name: values for name, values in columns.items() if np.unique(values).size >= least_n[name]
    }
    constant = tuple(name for name in columns if name not in varied and columns[name].any())
    names = list(varied)
    matrix: FloatArray = np.column_stack([np.ones(steps.size), *varied.values()])
    groups = independent(matrix[:, 1:])
    terms = (BASE, *(" with ".join(names[place] for place in group) for group in groups))
    if steps.size < _LEAST_STEPS * len(terms):
        return terms, constant, None
    firsts = matrix[:, [0, *(1 + group[0] for group in groups)]]
    return terms, constant, robust_fit(firsts, served.times.cost_ns[steps].astype(np.float64))


def padding(served: ServedSteps) -> Row | None:
    """Return the row of `padding` on rows of graphs that hold no token, but for the rank."""
    steps = np.flatnonzero(served.times.counted & (served.graph_size > 0))
    tokens = served.batches.tokens(steps)
    steps, tokens = steps[tokens >= 0], tokens[tokens >= 0]
    if not steps.size:
        return None
    size = served.graph_size[steps]
    padding_n = int(np.maximum(size - tokens, 0).sum())
    row_ns = _row_ns(served, np.intersect1d(steps, _steps_of(served, DECODE)))
    return {
        "steps_n": steps.size,
        "rows_n": int(size.sum()),
        "padding_n": padding_n,
        "padding_pct": 100.0 * padding_n / int(size.sum()),
        "row_ns": row_ns,
        "time_ns": None if row_ns is None else padding_n * row_ns,
    }


def _row_ns(served: ServedSteps, steps: IntArray) -> float | None:
    """Return what a row of their graphs adds to decode steps; None where it is not above 0."""
    if not steps.size:
        return None
    terms, _, fit = fitted(served, steps, served.graph_size[steps])
    if fit is None or _SIZE not in terms:
        return None
    place = terms.index(_SIZE)
    return float(fit.value[place]) if fit.low[place] > 0 else None


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
