"""The steps of one rank, and which of them count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.ops import PathOps
from nsys_llm.facts.steps.steps import (
    COUNTED,
    CUT,
    FILTERED,
    NOT_RECORDED,
    WARMUP,
    Steps,
)
from nsys_llm.numeric.intervals import IntArray, clipped_lengths
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class OpSteps:
    """The steps of one rank; where none are found, everything is one.

    Attributes:
        of_op: Shape (operations,), the step that launched each operation; -1 for none.
        detected: As the finder has them; None where there are none.
    """

    of_op: npt.NDArray[np.int32]
    detected: Steps | None

    @property
    def n(self) -> int:
        """How many there are."""
        return 1 if self.detected is None else len(self.detected)


def rank_steps(steps: Steps | None, ops: PathOps) -> OpSteps:
    """Return the steps of a rank."""
    if steps is None:
        return OpSteps(np.where(ops.kept, np.int32(0), np.int32(-1)), None)
    return OpSteps(steps.step if ops.row is None else steps.step[ops.row], steps)


def step_marks(
    trace: RankTrace,
    ops: PathOps,
    steps: OpSteps,
    windows: IntArray,
    options: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return why each step is in no statistic, as far as its rank tells.

    Args:
        windows: Shape (steps, 2), their windows on the first device.
        options: steps, skip_warmup, and whether other filters are given.
    """
    if steps.detected is None:
        return (COUNTED,)
    chosen = _chosen(trace, ops, steps, windows, options)
    marks = np.full(steps.n, COUNTED, dtype=object)
    marks[steps.detected.warmup] = WARMUP
    marks[~steps.detected.full] = CUT
    marks[steps.detected.unrecorded] = NOT_RECORDED
    marks[~chosen] = FILTERED
    return tuple(marks.tolist())


def _chosen(
    trace: RankTrace,
    ops: PathOps,
    steps: OpSteps,
    windows: IntArray,
    options: Mapping[str, Any],
) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(steps.n, dtype=bool)
    chosen[slice(*options["steps"]) if options["steps"] else slice(None)] = True
    if options["skip_warmup"]:
        chosen[0] = False
    if trace.windows_ns is not None:
        inside = clipped_lengths(windows[:, 0], windows[:, 1], trace.windows_ns)
        chosen &= 2 * inside > windows[:, 1] - windows[:, 0]
    elif not trace.complete and not (options["steps"] or options["skip_warmup"]):
        some = ops.kept & (steps.of_op >= 0)
        chosen &= np.bincount(steps.of_op[some], minlength=steps.n) > 0
    return chosen
