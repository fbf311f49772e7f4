"""Writes timelines as a trace that Perfetto and chrome://tracing open: gzipped Chrome JSON.

Times are microseconds with three decimals, so nanoseconds are exact. The same timelines give the
same bytes.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray, nesting_lanes
from nsys_llm.report.findings import Finding
from nsys_llm.trace.timeline import Counter, RankTimeline, Track

TRACE_NAME: Final = "trace.perfetto.json.gz"

#: Thread ids are unique in a file: some viewers look threads up without their process.
_LINES_OF_PROCESS: Final = 100_000

#: Names are cut here: templates of C++ reach many thousand characters.
_LONGEST_NAME: Final = 1_000


@dataclass(frozen=True)
class TracedRank:
    """One rank as a process of the trace.

    Attributes:
        number: Of the process, from 1: in this order they are shown, however they are written.
        on_axis: Puts times of its profile onto the axis of the file; their order stays.
    """

    number: int
    label: str
    on_axis: Callable[[IntArray], IntArray]
    timeline: RankTimeline


def findings_track(findings: Sequence[Finding]) -> Track:
    """Return the line of findings that have a window."""
    shown = [(finding, finding.window_ns) for finding in findings if finding.window_ns is not None]
    times = np.array([window for _, window in shown], dtype=np.int64).reshape(-1, 2)
    details = {
        name: [getattr(finding, name) for finding, _ in shown]
        for name in ("severity", "rule", "details", "recommendation")
    }
    titles = [finding.title for finding, _ in shown]
    return Track.plain("findings", "finding", times, titles, np.arange(len(shown)), details)


def write_trace(path: Path, ranks: Sequence[TracedRank], remarks: Sequence[str]) -> None:
    """Write a trace. No time in it is negative: Perfetto drops what is before 0."""
    before_ns = max(0, *(-_first_ns(rank) for rank in ranks)) if ranks else 0
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        packed.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        before = b""
        for rank in ranks:
            packed.write(before + ",\n".join(_events(rank, before_ns)).encode("ascii"))
            before = b",\n"
        packed.write(f'\n],"otherData":{{"remarks":{_json(list(remarks))}}}}}\n'.encode("ascii"))


def _first_ns(rank: TracedRank) -> int:
    """Return when the first event of a rank is on the axis; 0 without any."""
    timeline = rank.timeline
    starts = [track.start_ns for track in timeline.tracks if len(track)]
    starts += [counter.at_ns for counter in timeline.counters if counter.at_ns.size]
    first_ns = np.array([times_ns.min() for times_ns in starts], dtype=np.int64)
    return int(rank.on_axis(first_ns).min()) if starts else 0


def _events(rank: TracedRank, before_ns: int) -> Iterator[str]:
    def on_axis(times_ns: IntArray) -> IntArray:
        return rank.on_axis(times_ns) + before_ns

    pid = rank.number
    yield _named("process_name", pid, 0, rank.label)
    yield f'{{"ph":"M","pid":{pid},"name":"process_sort_index","args":{{"sort_index":{pid}}}}}'
    tid = pid * _LINES_OF_PROCESS
    starts: list[IntArray] = []
    ends: list[IntArray] = []
    events: list[str] = []
    for track in rank.timeline.tracks:
        lane = nesting_lanes(track.start_ns, track.end_ns)
        lanes_n = int(lane.max(initial=0)) + 1
        for number in range(lanes_n):
            more = f" ({number + 1})" if number else ""
            yield _named("thread_name", pid, tid + number, f"{track.label}{more}")
            place = f'"pid":{pid},"tid":{tid + number},"name":"thread_sort_index"'
            yield f'{{"ph":"M",{place},"args":{{"sort_index":{tid + number}}}}}'
        starts.append(track.start_ns)
        ends.append(track.end_ns)
        events += _slices(pid, _on_axis(track, on_axis), (tid + lane).tolist())
        tid += lanes_n
    if starts:
        # Calls stand before operations, so that an arrow begins before it ends.
        start_ns, end_ns = np.concatenate(starts), np.concatenate(ends)
        for row in np.lexsort((-end_ns, start_ns)).tolist():
            yield events[row]
    for counter in rank.timeline.counters:
        yield from _changes(pid, counter, on_axis)


def _on_axis(track: Track, on_axis: Callable[[IntArray], IntArray]) -> Track:
    """Return a line on the axis; a slice that is as long in its profile no more says how long."""
    start_ns, end_ns = on_axis(track.start_ns), on_axis(track.end_ns)
    length_ns = track.end_ns - track.start_ns
    differs = length_ns != end_ns - start_ns
    details = dict(track.details)
    if differs.any() and "duration_ns" not in details:
        details["duration_ns"] = np.where(differs, length_ns, NULL_INT)
    return replace(track, start_ns=start_ns, end_ns=end_ns, details=details)


def _slices(pid: int, track: Track, tids: Sequence[int]) -> Iterator[str]:
    names = [_json(_shown(text)) for text in track.texts]
    kinds = [_json(kind) for kind in track.kinds]
    details = {
        _json(name): values.tolist() if isinstance(values, np.ndarray) else values
        for name, values in track.details.items()
    }
    direction = "flow_out" if track.launches else "flow_in"
    columns = (track.name, track.kind, track.start_ns, track.end_ns, track.link)
    rows = zip(tids, *(column.tolist() for column in columns), strict=True)
    for row, (tid, name, kind, start_ns, end_ns, link) in enumerate(rows):
        reported = ",".join(
            f"{key}:{_json(values[row])}"
            for key, values in details.items()
            if values[row] not in (None, NULL_INT)
        )
        arrow = f',"bind_id":"0x{pid:x}{link:012x}","{direction}":true' if link >= 0 else ""
        yield (
            f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_us(start_ns)},'
            f'"dur":{_us(end_ns - start_ns)},"name":{names[name]},"cat":{kinds[kind]}{arrow}'
            + (f',"args":{{{reported}}}}}' if reported else "}")
        )


def _changes(pid: int, counter: Counter, on_axis: Callable[[IntArray], IntArray]) -> Iterator[str]:
    name, unit = _json(counter.label), _json(counter.unit)
    for at_ns, value in zip(on_axis(counter.at_ns).tolist(), counter.value.tolist(), strict=True):
        place = f'"pid":{pid},"ts":{_us(at_ns)}'
        yield f'{{"ph":"C",{place},"name":{name},"args":{{{unit}:{value}}}}}'


def _named(what: str, pid: int, tid: int, name: str) -> str:
    place = f'"pid":{pid},"tid":{tid}' if tid else f'"pid":{pid}'
    return f'{{"ph":"M",{place},"name":"{what}","args":{{"name":{_json(_shown(name))}}}}}'


def _us(time_ns: int) -> str:
    """Return nanoseconds as microseconds, exactly."""
    whole, rest = divmod(abs(time_ns), 1000)
    return f"{'-' if time_ns < 0 else ''}{whole}.{rest:03d}"


def _shown(name: str) -> str:
    """Return a name not longer than is of use."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _json(value: Sequence[str] | str | int | None) -> str:
    """Return a value as JSON in ASCII: whatever a name holds, it stays text."""
    return json.dumps(value, ensure_ascii=True)
