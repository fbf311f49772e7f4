"""Makes the tables of roofline of all ranks, once."""

from __future__ import annotations

from nsys_llm.job.collectives.matched import match_collectives
from nsys_llm.reduced.job import Job
from nsys_llm.report.outputs import Cells

from .kernels import category_rows, gemm_rows
from .peaks import find_peaks
from .steps import lost_rows, step_rows


def tabulate(job: Job) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    options = job.options
    rows = [(rank, job.facts.roofline[rank.key]) for rank in job.ranks]
    lanes = {rank.key: part.lanes for rank, part in rows if part.lanes}
    matched = match_collectives(lanes, job.ranks, options)
    peaks = find_peaks(rows, matched, options)
    steps = step_rows(rows, peaks, options)
    return {
        "step_roofline": steps,
        "lost": lost_rows(rows, steps, matched),
        "gemm_roofline": gemm_rows(rows, peaks),
        "category_roofline": category_rows(rows, peaks) if rows else [],
        "peaks": [peak.row | {"has_model": peak.model is not None} for peak in peaks],
    }
