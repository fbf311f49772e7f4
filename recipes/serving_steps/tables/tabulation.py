"""Makes the tables of serving_steps of all ranks, once."""

from __future__ import annotations

from nsys_llm.reduced.job import Job
from nsys_llm.report.columns import of_rank
from nsys_llm.report.outputs import Cells
from nsys_llm.taxonomy.phase_maps import OF_BATCHES

from .batches import batch_rows, batch_step_columns, pace, server_rows
from .between_tokens import before_rows, inter_token
from .cost_model import model_rows, padding
from .speculation import speculation


def tabulate(job: Job) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    rows = [(rank, job.facts.serving[rank.key]) for rank in job.ranks]
    served = [(rank, part.served) for rank, part in rows if part.served is not None]
    read = [(rank, steps) for rank, steps in served if steps.batches.is_read]
    slowest = pace(served, job.verdicts)
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
