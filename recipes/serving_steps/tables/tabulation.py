"""Tables of serving_steps out of the merged partial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys_llm.report.columns import of_rank
from nsys_llm.report.outputs import Cells
from nsys_llm.taxonomy.phase_maps import OF_BATCHES
from nsys_llm.trace.identity import Rank

from ..partials import ServingPartial
from .batches import batch_rows, batch_step_columns, pace, server_rows
from .between_tokens import before_rows, inter_token
from .cost_model import model_rows, padding
from .speculation import speculation


def tabulate(
    partial: ServingPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    rows = [(rank, partial.ranks[rank.key]) for rank in ranks]
    served = [(rank, part.served) for rank, part in rows if part.served is not None]
    read = [(rank, steps) for rank, steps in served if steps.batches.is_read]
    slowest = pace(served, partial.verdicts)
    return {
        "servers": server_rows(rows, slowest),
        "batches": [row for part in read for row in batch_rows(*part)],
        "cost_model": [
            row for phase in OF_BATCHES if slowest for row in model_rows(*slowest, phase)
        ],
        "inter_token": [of_rank(rank) | inter_token(steps) for rank, steps in read],
        "before_steps": [row for part in read for row in before_rows(*part)],
        "padding": [of_rank(rank) | row for rank, steps in read if (row := padding(steps))],
        "speculation": [of_rank(rank) | row for rank, steps in read if (row := speculation(steps))],
        "batch_steps": batch_step_columns(served),
    }
