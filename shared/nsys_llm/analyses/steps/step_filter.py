"""The steps of one rank as the filters --steps and --skip-warmup take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsys_llm.analyses.steps.finder import find_steps
from nsys_llm.trace.filters import FoundSteps
from nsys_llm.trace.rank_trace import RankTrace


def found_steps(trace: RankTrace, options: Mapping[str, Any]) -> FoundSteps | None:
    """Return the steps of a rank, before any filter; None without any."""
    steps = find_steps(trace, options)
    return (
        None if steps is None else FoundSteps(steps.ranges, steps.step, int(steps.span_end_ns[0]))
    )
