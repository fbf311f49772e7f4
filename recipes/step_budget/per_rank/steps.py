"""The steps of one rank, and which of them count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.critical_path.path.ops import PathOps
from nsys_llm.analyses.steps.steps import COUNTED, CUT, FILTERED, WARMUP, Steps
from nsys_llm.numeric.intervals import IntArray, clipped_lengths
from nsys_llm.trace.rank_trace import RankTrace
from nsys_llm.trace.steps import StepKind

#: Operations before the first step that are no fewer than this are not alike by chance; ours.
_LEAST_OPS: Final = 4


@dataclass(frozen=True)
class OpSteps:
    """The steps of one rank; where none are found, everything is one.

    Attributes:
        kind: What they are; None where none are found.
        of_op: Shape (operations,), the step that launched each operation; -1 for none.
        detected: As the finder has them; None where there are none.
    """

    kind: StepKind | None
    n: int
    of_op: npt.NDArray[np.int32]
    detected: Steps | None


def rank_steps(steps: Steps | None, ops: PathOps) -> OpSteps:
    """Return the steps of a rank."""
    if steps is None:
        return OpSteps(None, 1, np.where(ops.kept, np.int32(0), np.int32(-1)), None)
    of_op = steps.step if ops.row is None else steps.step[ops.row]
    return OpSteps(steps.kind, len(steps), of_op, steps)


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


def begins_in_step(ops: PathOps, steps: OpSteps) -> bool:
    """Return whether what ran before the first step is the end of a step that the capture cuts.

    It is where operations with the same names, in the same order, end most other steps. On the
    stream with most operations, as streams beside it may run ahead.
    """
    if steps.detected is None or not len(ops):
        return False
    stream = int(np.argmax(np.diff(ops.bounds)))
    rows = slice(ops.bounds[stream], ops.bounds[stream + 1])
    name, of_op = ops.name[rows], steps.of_op[rows]
    inside = np.flatnonzero(of_op >= 0)
    # Where each step begins that another precedes.
    begins = inside[1:][np.diff(of_op[inside]) > 0]
    n = int(inside[0]) if inside.size else 0
    if n < _LEAST_OPS or not begins.size:
        return False
    lengths = np.diff(begins, prepend=inside[0])
    # A head longer than a step is no part of one.
    begins = begins[lengths >= n]
    same = (name[begins[:, None] + np.arange(-n, 0)] == name[:n]).all(axis=1)
    return 2 * int(same.sum()) > lengths.size
