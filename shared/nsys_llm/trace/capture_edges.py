"""Work that was launched before a capture began. Pure.

It is not missing from a profile: no setting of the capture records its call, only a longer one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.rank_trace import sane_instants

_NEVER: Final = int(np.iinfo(np.int64).max)

_Rows = npt.NDArray[np.bool_]


def launched_before(
    start_ns: IntArray,
    correlation_id: IntArray,
    launch_row: npt.NDArray[np.integer[Any]],
    calls: Table | None,
) -> _Rows:
    """Return which operations were launched before the first API call that the profile has.

    Their own call is not there, and they began before any was made, or a smaller number says that
    it came earlier: a process counts its calls up.

    Args:
        launch_row: The row of the call that launched each, -1 for none.
        calls: The API calls of the process; None or empty where none were traced.
    """
    if calls is None or not len(calls):
        return np.zeros(start_ns.shape, dtype=bool)
    before = np.asarray(launch_row < 0) & ~uncalled(correlation_id)
    rows = np.flatnonzero(before)  # mostly few or none
    if rows.size:
        ids, some = calls["correlation_id"], correlation_id[rows]
        earlier = (some >= 0) & (some < ids.min(where=ids >= 0, initial=_NEVER))
        before[rows] = earlier | (start_ns[rows] < first_call_ns(calls))
    return before


def uncalled(correlation_id: IntArray) -> _Rows:
    """Return which operations no call launches: migrations of pages, launches by kernels.

    CUPTI counts calls from 1; NULL is an export without such numbers.
    """
    return np.asarray(correlation_id == 0)


def first_call_ns(calls: Table) -> int:
    """Return the first start of API calls that a capture can have; the largest number for none."""
    starts = calls["start_ns"]
    return int(starts.min(where=sane_instants(starts), initial=_NEVER))
