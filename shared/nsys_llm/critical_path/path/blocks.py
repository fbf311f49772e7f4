"""Stretches of a rank's segments with what each is charged to, some segments at a time.

All of them at once take several times the room of the trace. Host time is split by what the thread
did: NVTX ranges, the profiler's work, the driver's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path import classes
from nsys_llm.critical_path.path.edges import Edges
from nsys_llm.critical_path.path.stretches import (
    CLASS_MASK,
    EDGE_MASK,
    REASONS,
    Keys,
    Segments,
    Stretches,
    class_of,
    make_key,
    split_key,
    stretches,
)
from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.facts.host.places import NO_RANGE, OTHER_RANGES
from nsys_llm.facts.host.states import ACTIVITY, DOING, HostRecords, has_host_records
from nsys_llm.facts.nvtx.nvtx_tree import innermost_rows
from nsys_llm.facts.nvtx.range_names import RangeNames
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.grouping import (
    coded,
    distinct,
    distinct_codes,
    runs,
    sorted_distinct,
    split_by_code,
)
from nsys_llm.numeric.intervals import IntArray, starts_inside
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.idle_causes import MODULE_LOAD
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.taxonomy.step_names import range_key
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.host_part import OS_CALL
from nsys_llm.trace.ranges import PUSH_POP, closed_ends, lasting
from nsys_llm.trace.rank_trace import RankTrace, sane_times

_COLUMNS: Final = ("start_ns", "end_ns", "event_type", "text", "text_id", "domain_id", "global_tid")
_MOST_NAMES: Final = 256
#: The device of host time.
HOST: Final = -1
#: So many nodes at a time stay small beside the trace.
_NODES: Final = 1 << 15


@dataclass(frozen=True)
class _Line:
    """What a thread did from each of some instants to the next; codes begin before the first.

    Attributes:
        at_ns: Shape (instants,), ascending, each once.
        kept: Shape (instants + 1,), the bits of a key that stay as they are.
        bits: Shape (instants + 1,), those that are added.
    """

    at_ns: IntArray
    kept: npt.NDArray[np.int16]
    bits: Keys


class HostParts:
    """Splits host time of one rank where its thread entered or left a range, or other work began.

    Outside of CUDA calls also where it left its core or called the C library, if that is recorded.
    """

    def __init__(self, trace: RankTrace, host: HostTimeline) -> None:
        self._host = host
        self._lines: dict[int, tuple[_Line, _Line]] = {}
        events = trace.tables.get("nvtx_events", Table.empty(_COLUMNS))
        events = events.take(events["event_type"] == PUSH_POP)
        # Once: a table widens a whole column each time that it is asked for.
        self._starts = events["start_ns"]
        self._ends, _ = closed_ends(events["end_ns"], trace.last_end_ns)
        threads, code = distinct_codes(events["global_tid"])
        rows = split_by_code(code, threads.size)
        self._rows_of = dict(zip(threads.tolist(), rows, strict=True))
        self._names, self._name = _named(events, self._ends, trace.strings)
        self._records, self._doing = HostRecords(trace), [("", "")]
        if has_host_records(trace, ACTIVITY):
            calls = ((OS_CALL, name) for name in self._records.os_calls[1])
            self._doing = [*((state, "") for state in DOING), *calls]

    def named(self, detail: int) -> tuple[str, str, str]:
        """Return what a detail of `host_no_cuda` stands for: range, state and function."""
        name, doing = divmod(detail, len(self._doing))
        return self._names[name], *self._doing[doing]

    def split(self, stretches: Stretches) -> Stretches:
        """Cut stretches of calls at the instants at which what their threads did changes."""
        kind = class_of(stretches.key)
        on_host = (stretches.thread >= 0) & (kind != classes.SYNC_LATENCY)
        line_of = 2 * stretches.thread.astype(np.int64) + (kind == classes.HOST_NO_CUDA)
        used, code = distinct_codes(np.where(on_host, line_of, -1))
        lines = [None if key < 0 else self._of_thread(key // 2)[key % 2] for key in used.tolist()]
        if not any(line is not None and line.at_ns.size for line in lines):
            return stretches
        ends, begins = stretches.ends_ns(), stretches.begin_ns
        pieces_n = np.ones(begins.size, dtype=np.int64)
        last = np.zeros(begins.size, dtype=np.int64)
        for line, rows in _cut_rows(lines, code):
            low = np.searchsorted(line.at_ns, begins[rows], side="right")
            last[rows] = np.maximum(np.searchsorted(line.at_ns, ends[rows], side="left"), low)
            pieces_n[rows] += last[rows] - low
        offset = np.concatenate(([0], np.cumsum(pieces_n)))
        owner = np.repeat(np.arange(pieces_n.size), pieces_n)
        nth = np.arange(owner.size) - offset[owner]
        begin, key, upper = begins[owner], stretches.key[owner], nth < pieces_n[owner] - 1
        for line, rows in _cut_rows(lines, code[owner]):
            place = last[owner[rows]] - nth[rows]
            key[rows] = (key[rows] & line.kept[place]) | line.bits[place]
            cut = upper[rows]
            begin[rows[cut]] = line.at_ns[place[cut] - 1]
        thread, doubtful = stretches.thread[owner], stretches.doubtful[owner]
        first = offset[stretches.first]
        return Stretches(begin, key, thread, doubtful, first, stretches.top_ns)

    def _of_thread(self, thread: int) -> tuple[_Line, _Line]:
        """Return what splits time in calls of a thread (its code), and time outside of them."""
        if thread not in self._lines:
            host = self._host
            spans = [host.profiler, *(work.spans for work in host.driver if work.thread == thread)]
            work = sorted_distinct(np.concatenate(spans).reshape(-1))
            in_calls = self._with_work(thread, work, np.zeros(work.size + 1, dtype=np.int64), -1)
            at_ns, detail = self._outside(int(host.calls.threads[thread]), work)
            free = make_key(classes.HOST_NO_CUDA, 0, detail)
            outside = self._with_work(thread, at_ns, free, EDGE_MASK)
            self._lines[thread] = in_calls, outside
        return self._lines[thread]

    def _with_work(self, thread: int, at_ns: IntArray, bits: Keys, mask: int) -> _Line:
        """Return a line with what the driver and the profiler did put in, in place; else a mask."""
        kept = np.full(bits.shape, mask, dtype=np.int16)
        for work in self._host.driver:
            if work.thread == thread:
                inside = 1 + np.flatnonzero(starts_inside(at_ns, work.spans))
                kept[inside] &= ~CLASS_MASK
                loads = work.cause == MODULE_LOAD
                bits[inside] = classes.MODULE_LOAD if loads else classes.BACK_PRESSURE
        inside = 1 + np.flatnonzero(starts_inside(at_ns, self._host.profiler))
        kept[inside], bits[inside] = EDGE_MASK, classes.PROFILER
        return _Line(at_ns, kept, bits)

    def _outside(self, thread: int, work: IntArray) -> tuple[IntArray, IntArray]:
        """Return when what a thread did changes, and the detail before the first and from each.

        Args:
            work: When the driver's or the profiler's work begins or ends.
        """
        rows = self._rows_of.get(thread, np.empty(0, dtype=np.int64))
        starts, ends = self._starts[rows], self._ends[rows]
        # An empty range cuts as well; what has a time that no capture can have is no range.
        sane = sane_times(np.minimum(starts, ends), np.maximum(starts, ends))
        edges = (work, self._records.edges_ns(thread), starts[sane], ends[sane])
        at_ns = sorted_distinct(np.concatenate(edges))
        row = innermost_rows(np.flatnonzero(sane & (ends > starts)), starts, ends, at_ns)
        name = np.append(self._name[rows], 0)[row]  # of no range, the last
        doing, _ = self._records.doing(thread, at_ns)
        return at_ns, np.append(0, name * len(self._doing) + doing)


def _named(events: Table, ends: IntArray, strings: Mapping[int, str]) -> tuple[list[str], IntArray]:
    """Return the names of ranges, first that of none, and the place of each event's among them.

    Of more names than a table shows, those with most time keep theirs: sums are kept for each name
    and step.
    """
    named = RangeNames.of(events, np.arange(len(events)), strings)
    names = [NO_RANGE, *sorted({*map(range_key, named.texts)} - {NO_RANGE})]
    place = {name: nth for nth, name in enumerate(names)}
    code = named.mapped(lambda text: place[range_key(text)])
    if len(names) <= _MOST_NAMES + 1:
        return names, code
    starts = events["start_ns"]
    length_ns = np.where(lasting(starts, ends), ends - starts, 0)
    time_ns = np.bincount(code, length_ns, minlength=len(names))
    time_ns[0] = np.inf  # none keeps its place
    kept = np.sort(np.argsort(-time_ns, kind="stable")[: _MOST_NAMES + 1])
    new = np.full(len(names), kept.size, dtype=np.int64)
    new[kept] = np.arange(kept.size)
    return [*(names[nth] for nth in kept.tolist()), OTHER_RANGES], new[code]


def _cut_rows(lines: list[_Line | None], code: IntArray) -> Iterator[tuple[_Line, IntArray]]:
    """Yield each line at which anything changes, and the rows with its place as their code."""
    for line, rows in zip(lines, split_by_code(code, len(lines)), strict=True):
        if line is not None and line.at_ns.size:
            yield line, rows


@dataclass(frozen=True, order=True)
class Charge:
    """What time is charged to.

    Attributes:
        edge: Code of `EDGE_NAMES`: by which the path goes on from there.
        detail: Kernel, copy, API function, NVTX range, or reason; "" for none.
        device_id: CUDA device id; `HOST` for none.
        state: Of host time outside of CUDA calls what its thread did, see `STATES` of
            `nsys_llm.facts.host.states`; "" where it is not recorded.
        function: In which function of the C library it was; "" for none.
    """

    kind: int
    edge: int
    detail: str
    device_id: int
    state: str = ""
    function: str = ""


def unrecorded(kind: int = classes.UNKNOWN) -> Charge:
    """Return what time before all that is recorded is charged to."""
    return Charge(kind, 0, classes.BEFORE_CAPTURE, HOST)


@dataclass(frozen=True)
class Block:
    """Stretches of successive segments.

    Attributes:
        low: The first of the segments.
        charges: What codes stand for, sorted.
        code: Shape (stretches,), position in `charges`.
    """

    low: int
    parts: Stretches
    charges: tuple[Charge, ...]
    code: npt.NDArray[np.int32]


class Blocks:
    """Makes the stretches of segments of one rank."""

    def __init__(
        self, trace: RankTrace, edges: Edges, names: Sequence[str], segments: Segments
    ) -> None:
        self._edges, self._names, self._segments = edges, names, segments
        self._api_names, self._api = _apis(trace, edges.host)
        self._host_parts = HostParts(trace, edges.host)
        self._devices = distinct(edges.ops.device_ids).tolist()
        self.nodes_n = segments.top - segments.bottom + 1

    def __iter__(self) -> Iterator[Block]:
        for low, high in runs(self.nodes_n, _NODES):
            parts = self.stretches(np.arange(low, high))
            keys, code = distinct_codes(parts.key)
            charges, merged = self._charges(keys)
            yield Block(low, parts, charges, merged[code].astype(np.int32))

    def stretches(self, rows: IntArray) -> Stretches:
        """Return the stretches of some segments."""
        some = self._segments
        some = replace(some, top=some.top[rows], bottom=some.bottom[rows], next=some.next[rows])
        return self._host_parts.split(stretches(self._edges, some, self._api))

    def _charges(self, keys: Keys) -> tuple[tuple[Charge, ...], IntArray]:
        """Return what keys stand for, each once and sorted, and each one's place among them."""
        key_charges = []
        for kind, edge, detail in zip(*(item.tolist() for item in split_key(keys)), strict=True):
            text, device, doing = "", HOST, ("", "")
            if kind in (classes.COMPUTE, classes.COPY, classes.COMMUNICATION, classes.UNKNOWN):
                name, place = divmod(detail, len(self._devices))
                text = (REASONS if kind == classes.UNKNOWN else self._names)[name]
                device = self._devices[place]
            elif kind in (classes.DEVICE_LATENCY, classes.LAUNCH_LATENCY):
                device = self._devices[detail]
            elif kind == classes.HOST_NO_CUDA:
                text, state, function = self._host_parts.named(detail)
                doing = state, function
            elif kind != classes.PROFILER:
                text = self._api_names[detail]
            key_charges.append(Charge(kind, edge, text, device, *doing))
        return coded(key_charges)


def _apis(trace: RankTrace, host: HostTimeline) -> tuple[tuple[str, ...], Positions]:
    calls = trace.tables.get("api_calls")
    if calls is None or not host.calls.row.size:
        return (), np.empty(0, dtype=np.int32)
    names, code = coded_names(calls["name_id"], trace.strings, strip_api_version)
    return names, code.astype(np.int32)[host.calls.row]
