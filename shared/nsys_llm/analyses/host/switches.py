"""When a thread was on a core, out of its recorded switches. Pure numpy."""

from __future__ import annotations

import numpy as np

from nsys_llm.numeric.intervals import IntArray, union_intervals


def spans_on_core(at_ns: IntArray, goes_on: IntArray) -> IntArray:
    """Return when a thread ran: shape (n, 2), sorted and disjoint.

    Before its first switch and after its last one it did what these say.

    Args:
        at_ns: Shape (switches,), at least one, in any order.
        goes_on: Shape (switches,), not 0 where it goes onto a core, 0 where it leaves.
    """
    # Leaving one core and going onto another may bear the same time: it is on one then.
    order = np.lexsort((goes_on, at_ns))
    at_ns, runs = at_ns[order], goes_on[order] != 0
    bounds = np.iinfo(np.int64)
    edges = np.concatenate(([bounds.min // 4], at_ns, [bounds.max // 4]))
    running = np.concatenate(([not runs[0]], runs))
    return union_intervals(edges[:-1][running], edges[1:][running])
