"""What a step costs by its requests, tokens and contexts: the tables `cost_model` and `padding`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.steps.batches import DECODE, PHASES
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns

from ..partials import ServedSteps
from .batches import UNPARSED, Row, Served, columns_of, of_rank, pace
from .robust_fit import Fit, FloatArray, independent, robust_fit

#: What a step costs besides.
BASE: Final = "base"
#: In this order; of two that say nearly the same, the first stands for both.
_TERMS: Final = ("gen_tokens", "ctx_tokens", "g_sk", "c_sqsk")
#: Rows of the graph that a step replays.
_SIZE: Final = "graph_size"
#: What stands for a term that names do not tell.
_INSTEAD: Final = {"gen_tokens": "gen_reqs"}
_LEAST_VALUES: Final = 3
_LEAST_STEPS: Final = 10
#: Spread of what the model leaves, of the median step, in percent.
_MOST_SIGMA_PCT: Final = 10.0
#: Why there is no model.
FEW_STEPS: Final = "few steps"
SCATTERED: Final = "scattered"
#: What the price of a row of padding rests on.
BY_SIZE, BY_MODEL = "captured sizes", "cost model"


def model_columns(ranks: Sequence[Served]) -> Columns:
    """Return the columns of `cost_model`: of the rank whose steps take longest."""
    served = pace(ranks)
    rows: list[Row] = []
    if served is not None:
        rows = [row for phase in PHASES for row in _phase_rows(served, phase)]
    elif ranks:
        rows = [_without(ranks[0], None, 0, UNPARSED)]
    return columns_of(rows)


def _phase_rows(row: Served, phase: str) -> list[Row]:
    served = row[1]
    steps = _steps_of(served, phase)
    if not steps.size:
        return []
    model = _fitted(served, steps)
    if model.fit is None:
        return [_without(row, phase, steps.size, FEW_STEPS, model.constant)]
    fit = model.fit
    median_ns = float(np.median(served.times.cost_ns[steps]))
    if 100 * fit.sigma > _MOST_SIGMA_PCT * median_ns:
        return [_without(row, phase, steps.size, SCATTERED, model.constant, fit.sigma)]
    return [
        _without(row, phase, steps.size, None, model.constant, fit.sigma)
        | {
            "term": term,
            "value_ns": float(fit.value[place]),
            "low_ns": float(fit.low[place]),
            "high_ns": float(fit.high[place]),
            "outliers_n": fit.outliers_n,
        }
        for place, term in enumerate(model.terms)
    ]


def _without(
    row: Served,
    phase: str | None,
    steps_n: int,
    reason: str | None,
    constant: Sequence[str] = (),
    sigma_ns: float | None = None,
) -> Row:
    """Return a row without a coefficient."""
    return {
        **of_rank(row[0]),
        "phase": phase,
        **dict.fromkeys(("term", "value_ns", "low_ns", "high_ns")),
        "sigma_ns": sigma_ns,
        "steps_n": steps_n,
        "outliers_n": None,
        "left_out": ", ".join(constant) or None,
        "reason": reason,
    }


def _steps_of(served: ServedSteps, phase: str) -> IntArray:
    is_phase = np.array([item == phase for item in served.batches.phase], dtype=bool)
    return np.flatnonzero(served.times.counted & is_phase)


@dataclass(frozen=True)
class _Model:
    """A fit of some steps, of the fields that are known and vary.

    Attributes:
        terms: Names of the coefficients; those that stand for several say so.
        constant: Fields with too few values.
        fit: None for too few steps.
    """

    terms: tuple[str, ...]
    constant: tuple[str, ...]
    fit: Fit | None


def _fitted(served: ServedSteps, steps: IntArray, size: IntArray | None = None) -> _Model:
    """Fit the cost of some steps.

    Args:
        served: The rank.
        steps: Which.
        size: Shape (steps,), rows of their graphs, which stand for tokens that generate. Then each
            term counts from its mean.
    """
    columns: dict[str, IntArray] = {} if size is None else {_SIZE: size}
    for term in _TERMS[1:] if size is not None else _TERMS:
        values = served.batches.field(term)[steps]
        if term in _INSTEAD and ((values == NULL_INT).any() or served.batches.tokens_derived):
            term = _INSTEAD[term]
            values = served.batches.field(term)[steps]
        if not (values == NULL_INT).any():
            columns[term] = values
    varied = {name: values for name, values in columns.items() if _varies(values)}
    constant = tuple(name for name in columns if name not in varied and columns[name].any())
    names = [BASE, *varied]
    matrix: FloatArray = np.column_stack([np.ones(steps.size), *varied.values()])
    if size is not None:  # large sizes that differ little are no base
        matrix[:, 1:] -= matrix[:, 1:].mean(axis=0)
    groups = independent(matrix)
    terms = tuple(" with ".join(names[place] for place in group) for group in groups)
    if steps.size < _LEAST_STEPS * len(groups):
        return _Model(terms, constant, None)
    firsts = matrix[:, [group[0] for group in groups]]
    return _Model(
        terms, constant, robust_fit(firsts, served.times.cost_ns[steps].astype(np.float64))
    )


def _varies(values: IntArray) -> bool:
    return np.unique(values).size >= _LEAST_VALUES


def padding_columns(ranks: Sequence[Served], model: Columns) -> Columns:
    """Return the columns of `padding`: rows of graphs that hold no token, a row a rank."""
    rows = [row for served in ranks if (row := _padding(served, model)) is not None]
    return columns_of(rows)


def _padding(row: Served, model: Columns) -> Row | None:
    rank, served = row
    steps = np.flatnonzero(served.times.counted & (served.graphs.size > 0))
    tokens = served.batches.tokens(steps)
    known = tokens >= 0
    steps, tokens = steps[known], tokens[known]
    if not steps.size:
        return None
    size = served.graphs.size[steps]
    padding_n = int(np.maximum(size - tokens, 0).sum())
    row_ns, basis = _row_ns(served, steps, size, model)
    return {
        **of_rank(rank),
        "steps_n": steps.size,
        "rows_n": int(size.sum()),
        "padding_n": padding_n,
        "padding_pct": 100.0 * padding_n / int(size.sum()),
        "row_ns": row_ns,
        "basis": basis,
        "time_ns": None if row_ns is None else padding_n * row_ns,
    }


def _row_ns(
    served: ServedSteps, steps: IntArray, size: IntArray, model: Columns
) -> tuple[float | None, str | None]:
    """Return what a row costs, and how that is known: nothing where it is not above 0."""
    is_decode = np.array([served.batches.phase[step] == DECODE for step in steps.tolist()])
    some = steps[is_decode]
    if _varies(size[is_decode]):
        of_size = _fitted(served, some, size[is_decode])
        if of_size.fit is not None and _SIZE in of_size.terms:
            place = of_size.terms.index(_SIZE)
            if of_size.fit.low[place] > 0:
                return float(of_size.fit.value[place]), BY_SIZE
    names = ("term", "low_ns", "value_ns")
    terms = zip(*(model.get(name, ()) for name in names), strict=True)
    for term, low_ns, value_ns in terms:  # decode steps come first
        # Empty rows have no context: no price of a token with its context is theirs.
        if term in ("gen_tokens", "gen_reqs") and low_ns > 0:
            return float(value_ns), BY_MODEL
    return None, None
