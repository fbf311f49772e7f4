"""Whether the capture of a rank begins in a step: what ran before the first one says so."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.analyses.critical_path.critical_path import PathOps

from .steps import RankSteps

#: Operations before the first step that are no fewer than this are not alike by chance; ours.
_LEAST_OPS: Final = 4


def begins_in_step(ops: PathOps, steps: RankSteps) -> bool:
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
