"""What experts compute between an exchange of tokens and the next, and what uneven ones cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.collectives.experts import UNEVEN, ExpertGroup, find_experts
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray

from .groups import CommGroup
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


def expert_rows(job: CommJob, groups: Sequence[CommGroup]) -> list[dict[str, Any]]:
    """Return one row an instance."""
    group_of = {at: group.number for group in groups for at in group.rows}
    return [row for some in find_experts(job.collectives) for row in _rows(job, some, group_of)]


def _rows(job: CommJob, group: ExpertGroup, group_of: Mapping[int, int]) -> list[dict[str, Any]]:
    rows, layers = [], Counter[int]()
    members_n = len(group.owners)
    steps = _steps(job, group)
    for at, compute_ns in zip(group.dispatches.tolist(), group.compute_ns.T, strict=True):
        hot, step = int(compute_ns.argmax()), int(steps[at + 1])
        longest_ns, mean_ns = int(compute_ns[hot]), float(compute_ns.mean())
        rows.append(
            {
                "step": None if step == NULL_INT else step,
                "layer": layers[step],
                "group": group_of[int(group.exchanges.number[at + 1])],
                "hot_rank": job.rank(group.owners[hot]),
                "max_ns": longest_ns,
                "mean_ns": mean_ns,
                "cost_ns": longest_ns - mean_ns,
                "late_ns": int((group.waited_ns[at : at + 2] // members_n).sum()),
            }
        )
        layers[step] += 1
    pattern = _pattern(rows)
    return [{**row, "pattern": pattern} for row in rows]


def _steps(job: CommJob, group: ExpertGroup) -> IntArray:
    """Return the step of the job that each exchange is in; NULL_INT for none."""
    exchanges = group.exchanges
    steps = np.full(exchanges.row.size, NULL_INT)
    for number in np.unique(exchanges.number).tolist():
        sequence, here = job.collectives.sequences[number], exchanges.number == number
        end_ns = sequence.own_end_ns(0)[exchanges.row[here]]
        steps[here] = job.steps.of(sequence.owners[0], end_ns)
    return steps


def _pattern(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return how the slowest rank moves; None in too few steps."""
    inside = [row for row in rows if row["step"] is not None]
    if len({row["step"] for row in inside}) < _LEAST_STEPS:
        return None
    if sum(row["max_ns"] for row in inside) < UNEVEN * sum(row["mean_ns"] for row in inside):
        return EVEN
    by_layer: dict[int, list[int]] = {}
    for row in inside:
        by_layer.setdefault(row["layer"], []).append(row["hot_rank"])
    usual = {layer: max(set(hot), key=hot.count) for layer, hot in by_layer.items()}
    if all(hot.count(usual[layer]) >= _SAME * len(hot) for layer, hot in by_layer.items()):
        return ONE_RANK if len(set(usual.values())) == 1 else BY_LAYER
    return ROTATING
