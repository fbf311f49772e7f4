"""What was recorded of one rank in some windows: streams, calls, NVTX ranges, counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.host.states import THREAD_BITS
from nsys_llm.numeric.grouping import coded, distinct, distinct_codes, joined
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, starts_inside
from nsys_llm.numeric.watermarks import NEVER, levels, matched_frees
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import ALLOCATION, DEVICE, FREE, memory_kinds
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import OpNames
from nsys_llm.trace.ranges import Ranges, read_ranges
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace, sane_memory_events, sane_times
from nsys_llm.trace.timeline import Counter, Track


@dataclass(frozen=True)
class Recorded:
    """The rows of one rank that a timeline can show.

    Attributes:
        ops: By table of operations, those on the devices of the rank, before any filter. Beside
            their columns, `link`: row of the launching call, -1 where no arrow can be drawn;
            `launched_ns`: when that call began, NULL_INT where it is not known; and `name`.
        calls: API calls with times, with their `row` in the profile's table.
        call_texts: Names of calls; `calls["name"]` counts in them.
    """

    ops: Mapping[str, Table]
    texts: tuple[str, ...]
    calls: Table
    call_texts: tuple[str, ...]
    ranges: Ranges

    @classmethod
    def of(cls, trace: RankTrace, names: OpNames) -> Recorded:
        """Line up the rows of a rank."""
        table = trace.tables["api_calls"]
        sane = sane_times(table["start_ns"], table["end_ns"])
        call_texts, code = coded_names(table["name_id"], trace.strings)
        columns = {**table.columns, "name": code, "row": np.arange(len(table))}
        ops = {
            name: _with_links(op, table, sane, names.codes[name]).take(
                np.isin(op["device_id"], trace.device_ids)
            )
            for name, op in trace.unfiltered.items()
        }
        ranges = read_ranges(trace.tables["nvtx_events"], trace.strings, trace.last_end_ns)
        return cls(ops, names.texts, Table(columns).take(sane), call_texts, ranges)

    def starts(self, *, waits: bool, memory: bool) -> tuple[IntArray, IntArray]:
        """Return when each row starts, and how many events it may become.

        An operation is a slice, may need its call from before the window, changes two counters
        twice, and begins a slice of computation, one of idle time and a gap.

        Args:
            waits: Whether an operation may wait and transfer, too.
            memory: Whether a call may allocate or free memory, too.
        """
        parts = [*((11 if waits else 9, op["start_ns"]) for op in self.ops.values())]
        parts += [(2 if memory else 1, self.calls["start_ns"]), (1, self.ranges.start_ns)]
        weights = [np.full(part.size, weight, dtype=np.int64) for weight, part in parts]
        return np.concatenate([part for _, part in parts]), np.concatenate(weights)


def recorded_tracks(rows: Recorded, windows: IntArray) -> Iterator[Track]:
    """Return the lines of calls, NVTX ranges and streams: whole rows that reach into the windows.

    Args:
        windows: Shape (n, 2), sorted and disjoint.
    """
    ops = {
        name: op.take(_inside(op["start_ns"], op["end_ns"], windows))
        for name, op in rows.ops.items()
    }
    links = [op["link"] for op in ops.values()]
    linked = distinct(np.concatenate([np.empty(0, dtype=np.int64), *links]))
    yield from _call_tracks(rows, windows, linked[linked >= 0])
    for device in distinct(np.concatenate([op["device_id"] for op in ops.values()])).tolist():
        yield from _stream_tracks(rows, ops, device)


def recorded_counters(rows: Recorded, windows: IntArray) -> Iterator[Counter]:
    """Return how many operations of each device run, and how many are launched and wait."""
    ops = list(rows.ops.values())
    device_id, start_ns, end_ns, launched_ns = (
        np.concatenate([op[name] for op in ops])
        for name in ("device_id", "start_ns", "end_ns", "launched_ns")
    )
    for device in distinct(device_id).tolist():
        here = device_id == device
        yield _counter(f"GPU {device} running", start_ns[here], end_ns[here], windows)
        here &= (launched_ns != NULL_INT) & (launched_ns < start_ns)
        yield _counter(f"GPU {device} queue depth", launched_ns[here], start_ns[here], windows)


def memory_counters(trace: RankTrace, windows: IntArray) -> Iterator[Counter]:
    """Return the memory in use on each device, as far as it was allocated while recording."""
    events = trace.tables.get("memory_events")
    if events is None or not len(events):
        return
    rows = events.take(sane_memory_events(events))
    ended_by, _ = matched_frees(rows["address"], rows["start_ns"], rows["operation"] == FREE)
    there = (memory_kinds(rows["memory_kind"]) == DEVICE) & (rows["operation"] == ALLOCATION)
    for device in distinct(rows["device_id"][there]).tolist():
        begun = np.flatnonzero(there & (rows["device_id"] == device))
        freed = begun[ended_by[begun] != NEVER]
        size = rows["size_bytes"]
        at_ns, level = levels(
            np.concatenate((rows["start_ns"][begun], rows["start_ns"][ended_by[freed]])),
            np.concatenate((size[begun], -size[freed])),
        )
        yield _in_windows(f"GPU {device} memory", "bytes", at_ns, level, windows)


def reaching_in(track: Track, windows: IntArray) -> IntArray:
    """Return the slices that reach into windows, by position."""
    return np.flatnonzero(_inside(track.start_ns, track.end_ns, windows))


def _with_links(op: Table, calls: Table, sane: npt.NDArray[np.bool_], name: IntArray) -> Table:
    row = op["launch_row"]
    known = row >= 0
    known[known] = sane[row[known]]
    launched = np.full(row.shape, NULL_INT, dtype=np.int64)
    launched[known] = calls["start_ns"][row[known]]
    # Where the clocks of host and GPU disagree an arrow would point back in time.
    link = np.where(known & (launched <= op["start_ns"]), row, -1)
    return op.plus(link=link, launched_ns=launched, name=name)


def _inside(start_ns: IntArray, end_ns: IntArray, windows: IntArray) -> npt.NDArray[np.bool_]:
    reaches = clipped_lengths(start_ns, end_ns, windows) > 0
    return np.asarray(reaches | starts_inside(start_ns, windows))


def _call_tracks(rows: Recorded, windows: IntArray, linked: IntArray) -> Iterator[Track]:
    """Return the calls of each thread, those that launched what is shown among them; and ranges."""
    launches = np.isin(rows.calls["row"], linked)
    calls = rows.calls.take(
        launches | _inside(rows.calls["start_ns"], rows.calls["end_ns"], windows)
    )
    ranges = rows.ranges.take(_inside(rows.ranges.start_ns, rows.ranges.end_ns, windows))
    yield from _range_tracks(ranges.take(ranges.any_thread), "NVTX start/end")
    local = ranges.take(~ranges.any_thread)
    threads = distinct(np.concatenate((calls["global_tid"], local.thread))).tolist()
    for thread in threads:
        who = "thread" if thread == NULL_INT else f"thread {thread & THREAD_BITS}"
        yield from _range_tracks(local.take(local.thread == thread), f"{who} NVTX")
        here = calls.take(calls["global_tid"] == thread)
        if len(here):
            link = np.where(np.isin(here["row"], linked), here["row"], -1)
            kind = np.zeros(len(here), dtype=np.int64)
            yield Track(
                f"{who} CUDA calls",
                here["start_ns"],
                here["end_ns"],
                rows.call_texts,
                here["name"],
                ("call",),
                kind,
                link,
                launches=True,
            )


def _range_tracks(ranges: Ranges, label: str) -> Iterator[Track]:
    if not ranges.start_ns.size:
        return
    texts, name = coded(ranges.name.tolist())
    times = np.column_stack((ranges.start_ns, ranges.end_ns))
    domains = [domain or None for domain in ranges.domain.tolist()]
    yield Track.plain(label, "range", times, texts, name, {"domain": domains})


def _stream_tracks(rows: Recorded, ops: Mapping[str, Table], device: int) -> Iterator[Track]:
    shared = ("start_ns", "end_ns", "device_id", "stream_id", "name", "link")
    start_ns, end_ns, device_id, stream_id, name, link = (
        np.concatenate([op[column] for op in ops.values()]) for column in shared
    )
    sizes = [
        op["size_bytes"] if "size_bytes" in op else np.full(len(op), NULL_INT, dtype=np.int64)
        for op in ops.values()
    ]
    kind, size = np.repeat(np.arange(len(ops)), [len(op) for op in ops.values()]), joined(sizes)
    kinds = [OP_TABLES[table] for table in ops]
    for stream in distinct(stream_id[device_id == device]).tolist():
        here = (device_id == device) & (stream_id == stream)
        yield Track(
            f"GPU {device} " + ("streams not known" if stream == NULL_INT else f"stream {stream}"),
            start_ns[here],
            end_ns[here],
            rows.texts,
            name[here],
            kinds,
            kind[here],
            link[here],
            details={"bytes": size[here]},
        )


def _counter(label: str, start_ns: IntArray, end_ns: IntArray, windows: IntArray) -> Counter:
    """Return how many intervals are open inside windows; 0 outside."""
    at_ns, code = distinct_codes(np.concatenate((start_ns, end_ns)))
    change = np.repeat(np.array([1, -1], dtype=np.int64), start_ns.size)
    steps = np.zeros(at_ns.size, dtype=np.int64)
    np.add.at(steps, code, change)
    return _in_windows(label, "operations", at_ns, np.cumsum(steps), windows)


def _in_windows(
    label: str, unit: str, at_ns: IntArray, value: IntArray, windows: IntArray
) -> Counter:
    """Return a number inside windows; 0 outside.

    Args:
        at_ns: Shape (n,), when it changes, ascending.
        value: Shape (n,), from each on; 0 before the first.
        windows: Shape (m, 2), sorted and disjoint.
    """
    inside = starts_inside(at_ns, windows)
    before = np.searchsorted(at_ns, windows[:, 0], side="right") - 1
    opening = np.where(before >= 0, value[np.maximum(before, 0)], 0) if at_ns.size else before * 0
    times = np.concatenate((at_ns[inside], windows[:, 0], windows[:, 1]))
    values = np.concatenate((value[inside], np.maximum(opening, 0), np.zeros_like(opening)))
    # Of one time the last counts: what begins a window after what ends the one before.
    order = np.lexsort((np.arange(times.size), times))
    times, values = times[order], values[order]
    changes = np.append(True, values[1:] != values[:-1])
    return Counter(label, unit, times[changes], values[changes])
