"""Copies to the device that are the same in every step: weights that live on the host are so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.critical_path.rank.windows import OpSteps
from nsys_llm.facts.steps.steps import COUNTED
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.cuda_codes import LARGE_BYTES, LEAST_COPIES, LEAST_STEPS
from nsys_llm.taxonomy.step_names import STEP
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

_TABLE: Final = "memcpys"
_HTOD: Final = 1


@dataclass(frozen=True)
class RepeatedCopies:
    """What every step that counts copies to the device, the same each time.

    Attributes:
        copies_n: Copies a step; 0 where steps differ, or where there are too few.
        time_ns: Their summed time over all steps that count.
    """

    copies_n: int = 0
    size_bytes: int = 0
    time_ns: int = 0


def repeated_copies(trace: RankTrace, steps: OpSteps, marks: Sequence[str]) -> RepeatedCopies:
    """Return the large copies to the device that all steps have alike.

    Layers copy alike when a model is loaded once, too: only steps tell.
    """
    counted = np.flatnonzero([mark == COUNTED for mark in marks])
    detected, moves = steps.detected, trace.unfiltered.get(_TABLE)
    if detected is None or detected.unit != STEP or moves is None or counted.size < LEAST_STEPS:
        return RepeatedCopies()
    step = detected.step[_first_row(trace) :][: len(moves)]
    rows = np.flatnonzero((moves["copy_kind"] == _HTOD) & (moves["size_bytes"] >= LARGE_BYTES))
    rows = rows[np.isin(step[rows], counted)]
    sizes = moves["size_bytes"][rows]
    order = np.lexsort((sizes, step[rows]))
    copies_n = rows.size // counted.size
    if copies_n < LEAST_COPIES or rows.size != copies_n * counted.size:
        return RepeatedCopies()
    by_step: IntArray = sizes[order].reshape(counted.size, copies_n)
    if (step[rows][order].reshape(by_step.shape) != counted[:, None]).any():
        return RepeatedCopies()
    if (by_step != by_step[0]).any():
        return RepeatedCopies()
    time_ns = (moves["end_ns"] - moves["start_ns"])[rows].sum()
    return RepeatedCopies(copies_n, int(by_step[0].sum()), int(time_ns))


def _first_row(trace: RankTrace) -> int:
    names = list(OP_TABLES)
    before = names[: names.index(_TABLE)]
    return sum(len(trace.unfiltered[name]) for name in before if name in trace.unfiltered)
