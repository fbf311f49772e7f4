"""Tables of roofline out of the merged partial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys_llm.job.collectives.matched import match_collectives
from nsys_llm.job.partial import Partial
from nsys_llm.report.outputs import Cells
from nsys_llm.trace.identity import Rank

from ..partials import RankRoofline
from .kernels import category_rows, gemm_rows
from .peaks import find_peaks
from .steps import lost_rows, step_rows


def tabulate(
    partial: Partial[RankRoofline], ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    rows = [(rank, partial.ranks[rank.key]) for rank in ranks]
    lanes = {rank.key: part.lanes for rank, part in rows if part.lanes}
    matched = match_collectives(lanes, ranks, options)
    peaks = find_peaks(rows, matched, options)
    steps = step_rows(rows, peaks, options)
    return {
        "step_roofline": steps,
        "lost": lost_rows(rows, steps, matched),
        "gemm_roofline": gemm_rows(rows, peaks),
        "category_roofline": category_rows(rows, peaks) if rows else [],
        "peaks": [peak.row | {"has_model": peak.model is not None} for peak in peaks],
    }
