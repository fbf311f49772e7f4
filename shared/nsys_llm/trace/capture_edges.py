"""Work that the edges of a capture cut: launched before it began, or not over when it ended. Pure.

Such work is not missing from a profile: no setting of the capture records it, only a longer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
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


def cut_graph_launches(start_ns: IntArray, seen: _Rows, by_node: _Rows) -> _Rows:
    """Return which launches of graphs had not run when the capture ended.

    Those after all calls that left an operation, where nodes are traced one by one: a graph traced
    as a whole is recorded only once it has ended, and may have run for long.

    Args:
        by_node: Which launches of graphs left nodes.
    """
    sane = sane_instants(start_ns)
    known = seen & sane
    if not by_node.any() or not known.any():
        return np.zeros(start_ns.shape, dtype=bool)
    return np.asarray(sane & (start_ns > start_ns[known].max()))


def queued_at_end(
    calls: Table, waits: _Rows, ops: Mapping[str, Table], copies: Sequence[str]
) -> _Rows:
    """Return which calls are so late that their copies need not have run before the capture ended.

    A stream runs its work in order, so what the capture does not hold comes last. Such a call is
    made after the last one that left a copy (any operation, where no copy is recorded) and after
    the last wait for a stream or device; and no longer before the end of the capture than recorded
    operations took from their call to their end, and one more to run.

    Args:
        waits: Those that return only when earlier work is done.
        ops: Its operations by table, with their launches.
    """
    starts = calls["start_ns"]
    sane = sane_instants(starts)
    launched = {name: op.take(op["launch_row"] >= 0) for name, op in ops.items()}
    if not sane.all():
        launched = {name: op.take(sane[op["launch_row"]]) for name, op in launched.items()}
    launched = {name: op for name, op in launched.items() if len(op)}
    if not launched:
        return np.zeros(len(calls), dtype=bool)
    called_ns = {name: starts[op["launch_row"]] for name, op in launched.items()}
    last_start_ns = int(starts.max(where=sane, initial=NULL_INT))
    end_ns = max(last_start_ns, *(int(op["end_ns"].max()) for op in launched.values()))
    took_ns = max(int((op["end_ns"] - called_ns[name]).max()) for name, op in launched.items())
    ran_ns = max(int((op["end_ns"] - op["start_ns"]).max()) for op in launched.values())
    proofs = [name for name in copies if name in launched] or list(launched)
    last_ns = max(int(called_ns[name].max()) for name in proofs)
    last_ns = max(last_ns, int(starts[waits & sane].max(initial=NULL_INT)))
    return np.asarray(sane & (starts > last_ns) & (end_ns - starts <= took_ns + ran_ns))
