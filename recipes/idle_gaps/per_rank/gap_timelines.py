"""What happened around the longest gaps of all ranks: on the device, and on the threads it was for.

Few gaps and few bars around each, whatever the length of a capture and the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, record_columns
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.device_ops import DeviceOps, OpNames
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.rank_trace import RankTrace, sane_times
from nsys_llm.view.text import format_ns

from .gap_rows import GapRow, api_names, process_of, thread_number

#: So many gaps are drawn, over all ranks.
_DRAWN: Final = 5
#: So many operations before a gap and after it, and so many calls of a thread.
_OPS_EACH_SIDE: Final = 20
_CALLS: Final = 40


@dataclass(frozen=True)
class Bar:
    """One bar, cut to what is drawn: its row, what it is, its name, and its times in ns."""

    lane: str
    kind: str
    name: str
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class GapTimeline:
    """A gap and what was around it, in the report's own clock."""

    key: RankKey
    device_id: int
    start_ns: int
    end_ns: int
    bars: tuple[Bar, ...]

    @property
    def place(self) -> tuple[int, RankKey, int, int]:
        """What orders gaps: the longest first."""
        return self.start_ns - self.end_ns, self.key, self.device_id, self.start_ns


def few_longest(timelines: Iterable[GapTimeline]) -> tuple[GapTimeline, ...]:
    """Keep those of the longest gaps; in any order and grouping the same."""
    return tuple(sorted(timelines, key=lambda timeline: timeline.place)[:_DRAWN])


def map_timelines(
    trace: RankTrace,
    key: RankKey,
    ops: DeviceOps,
    names: OpNames,
    host: HostTimeline,
    gaps: Sequence[GapRow],
) -> tuple[GapTimeline, ...]:
    """Draw the longest of the gaps of a device that are listed one by one."""
    longest = sorted(gaps, key=lambda gap: (gap.start_ns - gap.end_ns, gap.start_ns))[:_DRAWN]
    timelines, api_name = [], api_names(trace, host)
    for gap in longest:
        length = gap.end_ns - gap.start_ns
        # The gap takes the middle third.
        view = gap.start_ns - length, gap.end_ns + length
        here = Bar("gap", CAUSE_NAMES[gap.cause_code], "nothing runs", gap.start_ns, gap.end_ns)
        bars = [*_op_bars(ops, names, gap, view), here]
        for thread in _threads(gap):
            bars += _call_bars(api_name, host, thread, view)
            bars += _os_bars(trace, thread, view)
        timelines.append(GapTimeline(key, gap.device_id, gap.start_ns, gap.end_ns, tuple(bars)))
    return tuple(timelines)


def timeline_columns(timelines: Sequence[GapTimeline], ranks: Mapping[RankKey, Rank]) -> Columns:
    """Return the table gap_timelines; of gaps of one length, the lower rank's comes first."""
    order = sorted(
        timelines,
        key=lambda timeline: (
            timeline.place[0],
            ranks[timeline.key].number,
            timeline.device_id,
            timeline.start_ns,
        ),
    )
    labels = [
        f"{place}: {ranks[timeline.key].file}, {format_ns(timeline.end_ns - timeline.start_ns)}"
        for place, timeline in enumerate(order, start=1)
    ]
    bars = [(ranks[timeline.key], bar) for timeline in order for bar in timeline.bars]
    bars_n = [len(timeline.bars) for timeline in order]
    return {
        **record_columns(bars, "lane", "kind", "name", "start_ns", "duration_ns"),
        "gap": [label for label, n in zip(labels, bars_n, strict=True) for _ in range(n)],
        "device_id": np.repeat([timeline.device_id for timeline in order], bars_n).astype(np.int64),
        "gap_start_ns": np.repeat([some.start_ns for some in order], bars_n).astype(np.int64),
    }


def _threads(gap: GapRow) -> list[int]:
    """Return the thread that launched what ends a gap, and the one that it waited for."""
    if gap.global_tid is None:
        return []
    other = gap.global_tid if gap.api_tid is None else process_of(gap.global_tid) | gap.api_tid
    return list(dict.fromkeys((gap.global_tid, other)))


def _op_bars(ops: DeviceOps, names: OpNames, gap: GapRow, view: tuple[int, int]) -> list[Bar]:
    """Return the operations nearest to a gap, on both sides."""
    middle, last = np.searchsorted(ops.start_ns, (gap.end_ns, view[1]), side="left")
    before = np.flatnonzero(ops.end_ns[:middle] >= view[0])
    nearest = np.argsort(ops.end_ns[before], kind="stable")[-_OPS_EACH_SIDE:]
    chosen = np.concatenate(
        (np.sort(before[nearest]), np.arange(middle, min(last, middle + _OPS_EACH_SIDE)))
    )
    return [
        Bar(
            lane="GPU",
            kind=_op_kind(names, int(ops.name[row])),
            name=names.texts[int(ops.name[row])],
            start_ns=max(int(ops.start_ns[row]), view[0]),
            end_ns=min(int(ops.end_ns[row]), view[1]),
        )
        for row in chosen.tolist()
    ]


def _op_kind(names: OpNames, code: int) -> str:
    return "kernel" if names.computing[code] else names.texts[code].partition(" ")[0]


def _call_bars(
    api_name: Callable[[int], str], host: HostTimeline, thread: int, view: tuple[int, int]
) -> list[Bar]:
    """Return the longest CUDA calls of a thread, by what they are as a cause of idle time."""
    calls = host.calls
    code = int(np.searchsorted(calls.threads, thread))
    low, high = calls.bounds[code : code + 2].tolist()
    # Of a thread, begins and ends of calls both ascend.
    first = low + int(np.searchsorted(calls.end_ns[low:high], view[0], side="right"))
    selected = slice(first, low + int(np.searchsorted(calls.start_ns[low:high], view[1])))
    return [
        Bar(
            lane=f"thread {thread_number(thread)}",
            kind=CAUSE_NAMES[int(host.cause[selected][row])],
            name=api_name(first + row),
            start_ns=start_ns,
            end_ns=end_ns,
        )
        for row, start_ns, end_ns in _longest(
            calls.start_ns[selected], calls.end_ns[selected], view
        )
    ]


def _os_bars(trace: RankTrace, thread: int, view: tuple[int, int]) -> list[Bar]:
    rows = trace.tables.get("os_calls")
    if rows is None:
        return []
    sane = sane_times(rows["start_ns"], rows["end_ns"])
    rows = rows.take(sane & (rows["global_tid"] == thread))
    return [
        Bar(
            lane=f"thread {thread_number(thread)}, OS",
            kind="OS call",
            name=text_of(int(rows["name_id"][row]), trace.strings),
            start_ns=start_ns,
            end_ns=end_ns,
        )
        for row, start_ns, end_ns in _longest(rows["start_ns"], rows["end_ns"], view)
    ]


def _longest(starts: IntArray, ends: IntArray, view: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Return row, start and end, cut, of the longest intervals in view, in order of time."""
    low, high = np.maximum(starts, view[0]), np.minimum(ends, view[1])
    rows = np.flatnonzero(high > low)
    rows = rows[np.argsort((low - high)[rows], kind="stable")[:_CALLS]]
    rows = rows[np.argsort(low[rows], kind="stable")]
    return [(row, int(low[row]), int(high[row])) for row in rows.tolist()]
