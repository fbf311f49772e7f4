"""The longest gaps of a device, each with all that the trace has on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.facts.device.idle_split import Situations, situate, split_gaps
from nsys_llm.facts.host.states import THREAD_BITS, HostRecords
from nsys_llm.facts.idle.gap_context import GapMarks
from nsys_llm.numeric.gaps import Gaps
from nsys_llm.numeric.intervals import IntArray, union_intervals
from nsys_llm.taxonomy.idle_causes import HOST_NO_CUDA, IDLE_CAUSES_N
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.device_ops import DeviceOps, OpNames
from nsys_llm.trace.rank_trace import RankTrace

#: What is not known of a gap without a launch.
_UNKNOWN: Final[dict[str, Any]] = {
    **dict.fromkeys(("launch_api", "global_tid", "api", "nvtx_range", "os_call", "on_core_ns")),
    "api_ns": 0,
    "os_call_ns": 0,
}


@dataclass(frozen=True)
class GapRow:
    """One gap. See the table `gaps` of the manifest; None where it is not known.

    Attributes:
        time_ns: Of each cause.
    """

    device_id: int
    start_ns: int
    end_ns: int
    before: str | None
    after: str | None
    cause_code: int
    time_ns: tuple[int, ...]
    certain_ns: int
    launch_api: str | None
    global_tid: int | None
    api: str | None
    api_ns: int
    nvtx_range: str | None
    os_call: str | None
    os_call_ns: int
    on_core_ns: int | None

    @property
    def duration_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns

    @property
    def tid(self) -> int | None:
        """Number of the launching thread."""
        return None if self.global_tid is None else self.global_tid & THREAD_BITS


def longest_gaps(length: IntArray, most_n: int, least_ns: int) -> IntArray:
    """Return which gaps are the longest, the earliest of equals first.

    Args:
        length: Shape (gaps,), in order of time.
    """
    rows = np.flatnonzero(length >= least_ns)
    if rows.size > most_n:
        limit = np.partition(length[rows], rows.size - most_n)[rows.size - most_n]
        rows = rows[length[rows] >= limit]
    return rows[np.argsort(-length[rows], kind="stable")][:most_n]


def top_gaps(
    trace: RankTrace,
    ops: DeviceOps,
    names: OpNames,
    host: HostTimeline,
    records: HostRecords,
    options: Mapping[str, Any],
) -> list[GapRow]:
    """Describe the longest gaps of a device."""
    rows = np.sort(
        longest_gaps(ops.gaps.end_ns - ops.gaps.start_ns, options["top"], options["min_gap_ns"])
    )
    gaps = ops.gaps.take(rows)
    where = situate(gaps, ops.launch_row, host)
    split = split_gaps(gaps, where, host)
    named, api_name = split.time_ns.argmax(axis=0), api_names(trace, host)
    first, known = where.call.copy(), np.flatnonzero(where.call >= 0)
    first[known] = host.calls.ended_before(gaps.start_ns[known], where.call[known])
    marks, gap_rows = GapMarks.of(trace, _spans(gaps, where, host)), []
    times, certain_ns = split.time_ns.T.tolist(), split.certain_ns[:IDLE_CAUSES_N].sum(axis=0)
    for at, cause in enumerate(named.tolist()):
        gap = int(gaps.start_ns[at]), int(gaps.end_ns[at])
        calls = int(first[at]), int(where.call[at])
        gap_rows.append(
            GapRow(
                device_id=ops.device_id,
                start_ns=gap[0],
                end_ns=gap[1],
                before=_name(ops, names, int(gaps.before[at])),
                after=_name(ops, names, int(gaps.after[at])),
                cause_code=cause,
                time_ns=tuple(times[at]),
                certain_ns=int(certain_ns[at]),
                **_launch(api_name, host, marks, records, calls, int(where.other[at]), gap, cause),
            )
        )
    return gap_rows


def api_names(trace: RankTrace, host: HostTimeline) -> Callable[[int], str]:
    """Return what tells the function of a call by its place; it holds the column of names."""
    ids = trace.tables["api_calls"]["name_id"] if host.calls.row.size else host.calls.row
    return lambda call: strip_api_version(text_of(int(ids[host.calls.row[call]]), trace.strings))


def _name(ops: DeviceOps, names: OpNames, op: int) -> str | None:
    return names.texts[int(ops.name[op])] if op >= 0 else None


def _spans(gaps: Gaps, where: Situations, host: HostTimeline) -> IntArray:
    """Return the gaps and the begins of their launches, as spans that may be looked at."""
    begins = host.calls.start_ns[where.call[where.call >= 0]]
    starts = np.concatenate((gaps.start_ns, begins))
    return union_intervals(starts, np.concatenate((gaps.end_ns, begins + 1)))


def _launch(
    api_name: Callable[[int], str],
    host: HostTimeline,
    marks: GapMarks,
    records: HostRecords,
    within: tuple[int, int],
    other: int,
    gap: tuple[int, int],
    cause: int,
) -> dict[str, Any]:
    """Return what the launching thread, or the one that it waited for, did in a gap.

    `within` is its first call that may reach into the gap, and the launching one; below 0: unknown.
    """
    call = within[1]
    if call < 0:
        return _UNKNOWN
    calls, thread = host.calls, int(host.calls.threads[host.calls.thread[call]])
    api, stretch = _stretch(host, within, other, gap, cause)
    middle_ns = int(calls.start_ns[call]) if stretch is None else sum(stretch) // 2
    where = thread if api is None else int(calls.threads[calls.thread[api]])
    os_call, os_call_ns = marks.os_call(thread, *gap)
    return {
        "launch_api": api_name(call),
        "global_tid": thread,
        "api": None if api is None else api_name(api),
        "api_ns": 0 if stretch is None or api is None else stretch[1] - stretch[0],
        "nvtx_range": marks.innermost(where, middle_ns),
        "os_call": os_call,
        "os_call_ns": os_call_ns,
        "on_core_ns": records.on_core_ns(thread, *gap),
    }


def _stretch(
    host: HostTimeline, within: tuple[int, int], other: int, gap: tuple[int, int], cause: int
) -> tuple[int | None, tuple[int, int] | None]:
    """Return the call with most time of the cause, and that time; or the longest without a call."""
    calls, places = host.calls, np.arange(within[0], within[1] + 1)
    begins, ends = calls.start_ns[places], calls.end_ns[places]
    if cause == HOST_NO_CUDA:
        begins, ends = np.concatenate(([gap[0]], ends[:-1])), begins
        return None, _longest(begins, ends, gap)[1]
    at, inside = _longest(begins, ends, gap, host.cause[places] == cause)
    if inside is None and other >= 0:
        low, high = calls.bounds[other : other + 2].tolist()
        first = low + int(np.searchsorted(calls.end_ns[low:high], gap[0], side="right"))
        places = np.arange(first, low + int(np.searchsorted(calls.start_ns[low:high], gap[1])))
        begins, ends = calls.start_ns[places], calls.end_ns[places]
        at, inside = _longest(begins, ends, gap, host.cause[places] == cause)
    return None if inside is None else int(places[at]), inside


def _longest(
    begins: IntArray,
    ends: IntArray,
    gap: tuple[int, int],
    kept: npt.NDArray[np.bool_] | None = None,
) -> tuple[int, tuple[int, int] | None]:
    """Return which interval has most time in a gap, and that part of it; None if none has any."""
    begins, ends = np.maximum(begins, gap[0]), np.minimum(ends, gap[1])
    inside = ends - begins if kept is None else np.where(kept, ends - begins, 0)
    if not inside.size or inside.max() <= 0:
        return -1, None
    at = int(inside.argmax())
    return at, (int(begins[at]), int(ends[at]))
