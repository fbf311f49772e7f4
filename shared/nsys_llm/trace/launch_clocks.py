"""How well the clocks of the host and the GPU agree within a profile. Pure numpy.

No operation can start before the call that launches it begins. Where some do, the two clocks differ
by at least as much, and what is told from both (who was first, how long a launch took to reach the
GPU) is no finer than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.rank_trace import sane_times

#: Percent of the launched operations whose early starts the robust figure covers: a few odd rows
#: say nothing about a clock. Ours.
_COVERED_PCT: Final = 99
_TIMES: Final = frozenset({"start_ns", "end_ns"})


@dataclass(frozen=True)
class EarlyStarts:
    """Operations that start before their launch call begins.

    Attributes:
        usual_ns: 99 % of the operations whose call is known start no earlier before it; 0 where
            99 % do not start before it at all.
        most_ns: The earliest of all starts so long before its call; 0 for none.
    """

    early_n: int = 0
    usual_ns: int = 0
    most_ns: int = 0


def early_starts(op: Table, calls: Table | None) -> EarlyStarts:
    """Return how long before their calls operations start.

    Args:
        op: Operations, with the row of the call that launched each, or -1.
        calls: The API calls; None where they are not traced, or without times.
    """
    if calls is None or not len(calls) or not len(op) or not set(calls.columns) >= _TIMES:
        return EarlyStarts()
    known_n = int(np.count_nonzero(op["launch_row"] >= 0))
    early_ns = np.sort(_early_ns(op, calls))
    # The nearest rank from above: the value that 99 % do not exceed.
    place = -(-known_n * _COVERED_PCT // 100) - 1 - (known_n - early_ns.size)
    usual_ns = int(early_ns[place]) if place >= 0 and early_ns.size else 0
    return EarlyStarts(early_ns.size, usual_ns, int(early_ns.max(initial=0)))


def _early_ns(op: Table, calls: Table) -> IntArray:
    """Return how long before their calls operations start, of those that do."""
    row, starts, ends = op["launch_row"], calls["start_ns"], calls["end_ns"]
    op_starts, parts = op["start_ns"], []
    for block in blocks(row.size):
        early_ns = np.where(row[block] >= 0, starts[row[block]] - op_starts[block], 0)
        # Where a call has no time, the difference is nonsense; few rows are left to look at.
        some = np.flatnonzero(early_ns > 0)
        of = row[block][some]
        parts.append(early_ns[some[sane_times(starts[of], ends[of])]])
    return joined(parts)
