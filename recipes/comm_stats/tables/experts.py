"""What experts compute between an exchange of tokens and the next, and what uneven ones cost."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.job.collectives.experts import UNEVEN, ExpertGroup, find_experts
from nsys_llm.report.columns import nullable
from nsys_llm.report.records import Record, records

from .job import CommJob

#: How the slowest rank moves.
EVEN: Final = "even"
ONE_RANK: Final = "one rank"
BY_LAYER: Final = "by layer"
ROTATING: Final = "rotating"

#: Steps that show how they move, and the share of them in which a layer's slowest is the same;
#: this project.
_LEAST_STEPS: Final = 5
_SAME: Final = 0.8


def expert_rows(job: CommJob, frame: pd.DataFrame) -> list[Record]:
    """Return one row an instance; `frame` is that of `collective_frame`."""
    if frame.empty:
        return []
    known = frame.set_index(["sequence_id", "ordinal"])[["group", "step"]]
    frames = [_rows(job, group, known) for group in find_experts(job.collectives)]
    return [row for rows in frames for row in records(rows)]


def _rows(job: CommJob, group: ExpertGroup, known: pd.DataFrame) -> pd.DataFrame:
    compute_ns, combines = group.compute_ns, group.dispatches + 1
    places = [column[combines] for column in (group.exchanges.number, group.exchanges.row)]
    rows = known.loc[pd.MultiIndex.from_arrays(places)].reset_index(drop=True)
    ranks = np.array([job.rank(owner) for owner in group.owners])
    waited_ns = group.waited_ns // ranks.size
    rows["layer"] = rows.groupby("step").cumcount()
    rows["hot_rank"] = ranks[compute_ns.argmax(axis=0)]
    rows["max_ns"], rows["mean_ns"] = compute_ns.max(axis=0), compute_ns.mean(axis=0)
    rows["cost_ns"] = rows["max_ns"] - rows["mean_ns"]
    rows["late_ns"] = waited_ns[group.dispatches] + waited_ns[combines]
    rows["pattern"] = _pattern(rows[rows["step"] != NULL_INT])
    return rows.assign(step=nullable(rows["step"].to_numpy()))


def _pattern(rows: pd.DataFrame) -> str | None:
    """Return how the slowest rank moves; None in too few steps."""
    if rows["step"].nunique() < _LEAST_STEPS:
        return None
    if rows["max_ns"].sum() < UNEVEN * rows["mean_ns"].sum():
        return EVEN
    usual = rows.groupby("layer")["hot_rank"].transform(lambda hot: hot.mode()[0])
    same = (rows["hot_rank"] == usual).groupby(rows["layer"]).mean()
    if (same < _SAME).any():
        return ROTATING
    return ONE_RANK if usual.nunique() == 1 else BY_LAYER
