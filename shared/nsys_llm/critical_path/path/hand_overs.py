"""Where a thread waited for another one: it went on only after that one had launched something."""

from __future__ import annotations

import numpy as np

from nsys_llm.critical_path.path.lags import NEVER
from nsys_llm.critical_path.path.ops import Bools, PathOps
from nsys_llm.critical_path.path.stream_order import StreamOrder
from nsys_llm.critical_path.path.sync_rows import POLL, Kinds
from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.facts.device.thread_calls import ThreadCalls
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.grouping import distinct_codes, split_by_code
from nsys_llm.numeric.intervals import IntArray


def handed_over(
    ops: PathOps,
    host: HostTimeline,
    kinds: Kinds,
    order: StreamOrder,
) -> tuple[IntArray, IntArray]:
    """Return the calls before which their thread waited for another, and that one's last call.

    Where a thread was in no call, and the operation of its next launch follows on its stream one
    that another thread launched in that time, it waited for that thread.
    """
    calls = host.calls
    if len(calls.threads) < 2:
        none = np.empty(0, dtype=np.int64)
        return none, none
    launches, other = _crossings(ops, calls, order)
    # Each stands for the calls of its thread since the launch before.
    chosen = np.flatnonzero(other >= 0)
    begins = calls.bounds[calls.thread[launches[chosen]]]
    since = np.maximum(np.where(chosen > 0, launches[chosen - 1] + 1, 0), begins)
    sizes = launches[chosen] - since + 1
    owner = np.repeat(np.arange(chosen.size), sizes)
    place = np.arange(owner.size) - (np.cumsum(sizes) - sizes - since)[owner]
    at = other[chosen[owner]]
    free_ns = np.where(place > begins[owner], calls.end_ns[place - 1], NEVER)
    handed = (calls.start_ns[place] > free_ns) & (calls.start_ns[at] >= free_ns)
    handed &= calls.start_ns[at] < calls.start_ns[place]
    return _last_calls(host, kinds != POLL, place[handed], calls.thread[at[handed]])


def _crossings(ops: PathOps, calls: ThreadCalls, order: StreamOrder) -> tuple[IntArray, Positions]:
    """Return the calls that launch, and the call of another thread that launched what came before.

    That is before the first operation of the first stream; -1 for none.
    """
    first = np.full(calls.row.size, -1, dtype=np.int32)
    launched = np.flatnonzero(ops.place >= 0)[::-1]
    first[ops.place[launched]] = launched
    del launched
    launches = np.flatnonzero(first >= 0)
    prior = order.before[first[launches]]
    other = np.where(prior >= 0, ops.place[np.maximum(prior, 0)], -1)
    same = calls.thread[np.maximum(other, 0)] == calls.thread[launches]
    return launches, np.where(same, -1, other)


def _last_calls(
    host: HostTimeline, counted: Bools, place: IntArray, thread: Positions
) -> tuple[IntArray, IntArray]:
    """Return the calls that have one, and the last call of a thread that returned before each.

    Args:
        counted: Shape (calls,), which may be that last one.
        place: Shape (k,), calls of other threads.
        thread: Shape (k,), code of the thread.
    """
    calls = host.calls
    latest = np.maximum.accumulate(np.where(counted, np.arange(counted.size), -1))
    last = np.full(place.shape, -1, dtype=np.int64)
    codes, code_of = distinct_codes(thread.astype(np.int64))
    for code, rows in zip(codes.tolist(), split_by_code(code_of, codes.size), strict=True):
        low, high = int(calls.bounds[code]), int(calls.bounds[code + 1])
        n = np.searchsorted(calls.end_ns[low:high], calls.start_ns[place[rows]], side="right")
        last_call = latest[np.maximum(low + n - 1, 0)]
        last[rows] = np.where((n > 0) & (last_call >= low), last_call, -1)
    known = last >= 0
    return place[known], last[known]
