"""What a step costs by its requests, tokens and contexts: the tables `cost_model` and `padding`."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.serving.rank import ServedSteps
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.phase_maps import DECODE
from nsys_llm.trace.identity import Rank

from .batches import Row
from .robust_fit import Fit, FloatArray, independent, robust_fit

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
