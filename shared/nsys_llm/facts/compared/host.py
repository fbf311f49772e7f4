"""The host of one rank: how long it takes for what waits for no GPU, and where it is in idle gaps.

Of calls those that return without waiting for the GPU, of NVTX ranges those in which no CUDA call
begins on their thread: what takes longer there is the host itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.facts.nvtx.range_names import RangeNames
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.numeric.enclosing import first_above
from nsys_llm.numeric.grouping import coded, distinct_codes
from nsys_llm.numeric.intervals import IntArray, starts_inside
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import WAITING_CLASSES, classify_api
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.taxonomy.step_names import range_key
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.ranges import PUSH_POP, lasting
from nsys_llm.trace.rank_trace import RankTrace


def call_times(trace: RankTrace) -> ByKey:
    """Return how long CUDA calls of a rank took that wait for nothing, in ns, by function."""
    calls = trace.host_calls("api_calls")
    names, code = coded_names(calls["name_id"], trace.strings, strip_api_version)
    waits = np.array([classify_api(name) in WAITING_CLASSES for name in names], dtype=bool)
    kept = trace.starts_inside(calls)
    if names:
        kept = kept & ~waits[code]
    took_ns = calls["end_ns"] - calls["start_ns"]
    return ByKey(names, counts=ValueCounts.from_values(code[kept], took_ns[kept]))


def range_times(trace: RankTrace) -> ByKey:
    """Return how long NVTX ranges without a CUDA call took, by name, running numbers as #."""
    events = trace.tables.get("nvtx_events")
    if events is None or not len(events):
        return ByKey()
    starts, ends = events["start_ns"], events["end_ns"]
    kept = (events["event_type"] == PUSH_POP) & lasting(starts, ends)
    if trace.windows_ns is not None:
        kept &= starts_inside(starts, trace.windows_ns)
    rows = np.flatnonzero(kept)
    rows = rows[~_calls_inside(events, rows, trace.tables.get("api_calls"))]
    named = RangeNames.of(events, rows, trace.strings)
    names, code = coded([range_key(text) for text in named.texts])
    counts = ValueCounts.from_values(code[named.code], ends[rows] - starts[rows])
    return ByKey(names, counts=counts)


def _calls_inside(events: Table, rows: IntArray, calls: Table | None) -> npt.NDArray[np.bool_]:
    """Tell in which ranges a CUDA call of their thread begins."""
    if calls is None or not len(calls):
        return np.zeros(rows.size, dtype=bool)
    threads, code = distinct_codes(
        np.concatenate((events["global_tid"][rows], calls["global_tid"]))
    )
    of_range, of_call = code[: rows.size], code[rows.size :]
    order = np.lexsort((calls["start_ns"], of_call))
    at_ns = calls["start_ns"][order]
    bounds = np.searchsorted(of_call[order], np.arange(threads.size + 1))
    first, last = (
        first_above(at_ns, events[name][rows] - 1, of_range, bounds)
        for name in ("start_ns", "end_ns")
    )
    return last > first


class ThreadRanges:
    """The ranges of all threads of a rank, and the names of those that were asked for."""

    def __init__(self, trace: RankTrace) -> None:
        """Read the ranges."""
        self._trace, events = trace, trace.tables.get("nvtx_events")
        self._tree = NvtxTree.of(events, trace.last_end_ns)
        self._texts = RangeNames.of(events, self._tree.event, trace.strings)
        self._place: dict[str, int] = {"": 0}

    @property
    def names(self) -> tuple[str, ...]:
        """Names with # for running numbers; the first stands for no range."""
        return tuple(self._place)

    def during(self, start_ns: IntArray, end_ns: IntArray, launch_row: IntArray) -> IntArray:
        """Return the innermost range in the middle of what a thread did before its launch.

        Args:
            start_ns: Shape (gaps,), when each gap began.
            launch_row: Row of the API call that launched what ended it, -1 where not known.

        Returns:
            Shape (gaps,), positions in `names`.
        """
        calls = self._trace.tables.get("api_calls")
        if calls is None or not len(calls) or not len(self._tree):
            return np.zeros(start_ns.shape, dtype=np.int64)
        row = np.maximum(launch_row, 0)
        called_ns = np.clip(calls["start_ns"][row], start_ns, end_ns)
        thread = self._tree.thread_codes(calls["global_tid"][row])
        middle_ns = start_ns + (called_ns - start_ns) // 2
        pieces = self._tree.innermost(np.where(launch_row < 0, -1, thread), middle_ns)
        texts, code = self._texts.texts, self._texts.code
        names = ("" if piece < 0 else range_key(texts[code[piece]]) for piece in pieces.tolist())
        places = [self._place.setdefault(name, len(self._place)) for name in names]
        return np.array(places, dtype=np.int64)
