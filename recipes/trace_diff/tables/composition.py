"""What the batches of two runs hold, by the kind of step: the table composition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.trace.rank_sets import COMPARED

from ..per_rank.step_works import Work
from .step_splits import RunSteps

_AMOUNTS: Final = ("gen_reqs", "gen_tokens", "ctx_reqs", "ctx_tokens")


def composition_rows(sides: Sequence[RunSteps]) -> list[dict[str, Any]]:
    """Return the table composition, of full steps whose names tell their batch.

    Args:
        sides: Steps of the baseline and of the input.
    """
    rows: list[dict[str, Any]] = []
    for run, steps in zip(COMPARED, sides, strict=True):
        phases = np.array([_phase(work) for work in steps.work], dtype=object)
        for phase in ("decode", "mixed", "prefill"):
            of_phase = np.flatnonzero(phases == phase)
            if of_phase.size:
                works = [steps.work[row] for row in of_phase]
                row = {
                    "run": run,
                    "phase": phase,
                    "steps_n": of_phase.size,
                    "share_pct": 100 * of_phase.size / len(steps),
                    "keys_n": _mean(steps.keys_n[of_phase].tolist()),
                    "step_ns": float((steps.program_ns - steps.between_ns)[of_phase].mean()),
                }
                amounts = {
                    name: _mean([getattr(work, name) for work in works]) for name in _AMOUNTS
                }
                rows.append(row | amounts)
    return rows


def _phase(work: Work) -> str | None:
    if work.label or not work.is_told:
        return None
    if work.is_decode:
        return "decode"
    return "prefill" if work.is_prefill else "mixed"


def _mean(values: Sequence[int]) -> float | None:
    """Return the mean; None where any is not told."""
    return None if min(values) < 0 else sum(values) / len(values)
