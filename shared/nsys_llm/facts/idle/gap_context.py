"""What the host did around the gaps that are listed one by one: ranges, system calls, cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.device.idle_split import BUCKET_EDGES_NS, BUCKETS
from nsys_llm.facts.host.places import Places
from nsys_llm.numeric.gaps import Gaps
from nsys_llm.numeric.grouping import exact_sums, split_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, HOST_CAUSES
from nsys_llm.taxonomy.names import normalize_range
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.device_ops import DeviceOps
from nsys_llm.trace.ranges import DOMAIN_CREATED, Ranges, read_ranges
from nsys_llm.trace.rank_trace import RankTrace, sane_times


@dataclass(frozen=True)
class GapMarks:
    """What was marked on the host around some gaps.

    Attributes:
        ranges: NVTX ranges that reach near one of them; None where none were recorded.
        os_calls: Calls of the operating system that reach into one; None likewise.
    """

    ranges: Ranges | None
    os_calls: Table | None
    names: dict[int, str]

    @classmethod
    def of(cls, trace: RankTrace, spans: IntArray) -> GapMarks:
        """Keep what a few gaps need: text is slow, and most rows are far from any of them.

        Args:
            spans: Shape (n, 2), sorted and disjoint: the gaps, and when their launches began.
        """
        ranges = os_calls = None
        events = trace.tables.get("nvtx_events")
        if events is not None and len(events) and len(spans):
            last_ns = int(spans[-1, 1])
            ends = np.where(events["end_ns"] == NULL_INT, last_ns, events["end_ns"])
            near = _reaches(events["start_ns"], ends, spans)
            near |= events["event_type"] == DOMAIN_CREATED
            ranges = read_ranges(events.take(near), trace.strings, last_ns)
        calls = trace.tables.get("os_calls")
        if calls is not None and len(calls) and len(spans):
            sane = sane_times(calls["start_ns"], calls["end_ns"])
            os_calls = calls.take(sane & _reaches(calls["start_ns"], calls["end_ns"], spans))
        ids = [] if os_calls is None else np.unique(os_calls["name_id"]).tolist()
        return cls(ranges, os_calls, {key: text_of(key, trace.strings) for key in ids})

    def innermost(self, thread: int, at_ns: int) -> str | None:
        """Return the name, normalized, of the innermost range that a thread is in at an instant.

        The one that began last, also across domains; start/end ranges of the process only where
        the thread has none open.
        """
        if self.ranges is None:
            return None
        ranges = self.ranges
        around = (ranges.start_ns <= at_ns) & (ranges.end_ns > at_ns)
        open_rows = np.flatnonzero(around & ~ranges.any_thread & (ranges.thread == thread))
        if not open_rows.size:
            open_rows = np.flatnonzero(around & ranges.any_thread)
        return normalize_range(str(ranges.name[open_rows[-1]])) if open_rows.size else None

    def os_call(self, thread: int, start_ns: int, end_ns: int) -> tuple[str | None, int]:
        """Return the function in which a thread was longest in a stretch, and for how many ns."""
        if self.os_calls is None:
            return None, 0
        calls = self.os_calls.take(self.os_calls["global_tid"] == thread)
        inside = np.minimum(calls["end_ns"], end_ns) - np.maximum(calls["start_ns"], start_ns)
        calls, inside = calls.take(inside > 0), inside[inside > 0]
        if not inside.size:
            return None, 0
        ids, code = np.unique(calls["name_id"], return_inverse=True)
        sums = np.bincount(code, weights=inside)
        # Of equal ones the name decides, not the id.
        best = min(range(ids.size), key=lambda at: (-sums[at], self.names[int(ids[at])]))
        return self.names[int(ids[best])], int(sums[best])


def _reaches(starts: IntArray, ends: IntArray, spans: IntArray) -> npt.NDArray[np.bool_]:
    """Return which intervals reach into one of some spans, sorted and disjoint."""
    first = np.searchsorted(spans[:, 1], starts, side="right")
    begins = spans[np.minimum(first, len(spans) - 1), 0]
    return np.asarray((first < len(spans)) & (begins < ends))


_HOST: tuple[int, ...] = tuple(CAUSE_NAMES.index(name) for name in HOST_CAUSES)


def gap_ranges(
    ops: DeviceOps, named: npt.NDArray[np.int8], calls: Table, places: Places
) -> Mapping[tuple[int, int], tuple[str, int]]:
    """Return the range with most time of the gaps named after a host's cause, and that time in ns.

    The innermost range of the launching thread, in the middle of the time until its call returned.

    Args:
        named: Shape (gaps,), the code of the cause that each gap is named after.

    Returns:
        By code of the cause and place among `BUCKETS`; nothing for gaps outside of all ranges.
    """
    launch = np.append(ops.launch_row, -1)[ops.gaps.after]
    rows = np.flatnonzero(np.isin(named, _HOST) & (launch >= 0))
    if not rows.size or len(places.names) < 2:
        return {}
    gaps, call = ops.gaps.take(rows), launch[rows]
    length = gaps.end_ns - gaps.start_ns
    place = _places(gaps, calls["global_tid"][call], calls["end_ns"][call], places)
    bucket = np.searchsorted(BUCKET_EDGES_NS, length, side="right")
    group = named[rows].astype(np.int64) * len(BUCKETS) + bucket
    shape = len(CAUSE_NAMES) * len(BUCKETS), len(places.names)
    sums = exact_sums(group * shape[1] + place, length, shape[0] * shape[1]).reshape(shape)[:, 1:]
    most = sums.argmax(axis=1)
    return {
        divmod(of, len(BUCKETS)): (places.names[1 + most[of]], int(sums[of, most[of]]))
        for of in np.flatnonzero(sums.any(axis=1)).tolist()
    }


def _places(gaps: Gaps, thread: IntArray, done_ns: IntArray, places: Places) -> IntArray:
    """Return the place of the thread of each gap among the names of `places`."""
    middle_ns = (gaps.start_ns + np.clip(done_ns, gaps.start_ns, gaps.end_ns)) // 2
    threads, code = np.unique(thread, return_inverse=True)
    found = np.zeros(len(gaps), dtype=np.int64)
    for of, some in zip(threads.tolist(), split_by_code(code, threads.size), strict=True):
        found[some] = places.names_at(of, middle_ns[some])
    return found
