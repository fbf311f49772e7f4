"""What host threads did while a GPU waited for them, instant by instant, out of an SQLite export.

Nothing here is shared with the analysis but the cause that the name of a call stands for.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import cache, cached_property
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, call_cause
from nsys_llm.taxonomy.names import strip_api_version

#: Begin, end, the thread that it was exposed to, and the one that launched before, if another.
Stretch = tuple[int, int, int, int | None]
BLOCKING = ("host_sync", "sync_memop", "alloc", "module_load")


class HostTruth:
    """One process, whose operations are those of one device."""

    def __init__(self, path: Path) -> None:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            self._database = database
            names = dict(self.rows("StringIds", "id", "value"))
            kinds = ("KERNEL", "MEMCPY", "MEMSET")
            self.ops = sorted(
                row
                for kind in kinds
                for row in self.rows(f"CUPTI_ACTIVITY_KIND_{kind}", "start", "end", "correlationId")
            )
            calls = self.rows(
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                *("start", "end", "globalTid", "correlationId", "nameId"),
            )
            self.launch = {row[3]: row for row in calls}
            self.cause = {row: CAUSE_NAMES[call_cause(names[row[4]])] for row in calls}
            self._slow(calls, names)
            self.names = {row: strip_api_version(names[row[4]]) for row in calls}
            self.calls = _by_thread(calls, 2)
            switches = self.rows("SCHED_EVENTS", "start", "isSchedIn", "globalTid")
            self.switches = _by_thread(switches, 2)
            for rows in self.switches.values():
                rows.sort()
            os_calls = self.rows("OSRT_API", "start", "end", "globalTid", "nameId", "eventClass")
            os_calls = [(*row[:3], names[row[3]]) for row in os_calls if row[4] == 27]
            self.os_calls = _by_thread(os_calls, 2)
            overheads = self.rows("PROFILER_OVERHEAD", "start", "end")
            self.profiler = sorted((start, end) for start, end in overheads)
            self.has_samples = bool(self.rows("COMPOSITE_EVENTS", "id"))
            self.samples = [
                row[:3]
                for row in self.rows("COMPOSITE_EVENTS", "start", "globalTid", "id", "cpuCycles")
                if row[3] == 1
            ]
            self.ranges = self.rows("NVTX_EVENTS", "start", "end", "text", "globalTid")
            frames = self.rows("SAMPLING_CALLCHAINS", "stackDepth", "id", "module")
            leaves = sorted(frames, reverse=True)
            self.modules = {identity: names[module] for _, identity, module in leaves}

    def rows(self, table: str, *columns: str) -> list[Any]:
        """Return some columns of a table; of one that is not there, no rows."""
        there = self._database.execute("SELECT name FROM sqlite_master WHERE name = ?", (table,))
        if there.fetchone() is None:
            return []
        return self._database.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()

    def _slow(self, calls: list[Any], names: dict[int, str]) -> None:
        """Give first launches that load code, and copies that stage memory, their causes."""
        first: dict[int, Any] = {}
        launches = [row for row in calls if "LaunchKernel" in names[row[4]]]
        usual = median(end - start for start, end, *_ in launches) if launches else 0
        for name, corr in self.rows("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName", "correlationId"):
            row = self.launch.get(corr)
            if row is not None and (name not in first or row < first[name]):
                first[name] = row
        for row in first.values():
            if row[1] - row[0] >= max(100_000, 10 * usual) and row in launches:
                self.cause[row] = "module_load"
        columns = ("correlationId", "copyKind", "srcKind", "dstKind")
        staged = self.rows("CUPTI_ACTIVITY_KIND_MEMCPY", *columns)
        for corr, kind, source, target in staged:
            if corr in self.launch and ((kind, source) == (1, 0) or (kind, target) == (2, 0)):
                self.cause[self.launch[corr]] = "sync_memop"

    @cached_property
    def exposed(self) -> list[Stretch]:
        """Return begin and end of each stretch exposed to a thread, the thread, and the one before.

        The one before launched the operation that ended last before the gap.
        """
        stretches, last = [], self.ops[0]
        for op in self.ops[1:]:
            call, before = self.launch.get(op[2]), self.launch.get(last[2])
            if op[0] > last[1] and call is not None and call[1] > last[1]:
                other = None if before is None or before[2] == call[2] else before[2]
                stretches.append((last[1], min(call[1], op[0]), call[2], other))
            last = op if op[1] > last[1] else last
        return stretches

    @cache  # noqa: B019 - of the few that a test makes
    def _near(self, thread: int, low: int, high: int) -> tuple[list[Any], list[Any]]:
        """Return the CUDA calls and those of the C library that reach into a stretch."""
        every = (self.calls[thread], self.os_calls[thread])
        return tuple([row for row in rows if row[0] < high and row[1] > low] for rows in every)

    def state(self, at: int, stretch: Stretch) -> tuple[str, str, str | None]:
        """Return cause, state and function of the thread of a stretch at an instant."""
        low, high, thread, other = stretch
        call = _open(self._near(thread, low, high)[0], at)
        cause = "host_no_cuda" if call is None else self.cause[call]
        if call is None and other is not None:
            held = _open(self._near(other, low, high)[0], at)
            cause = self.cause[held] if held and self.cause[held] in BLOCKING else cause
        if any(start <= at < end for start, end in self.profiler):
            cause = "profiler_overhead"
        if call is not None:
            return cause, "cuda_call", self.names[call]
        if (os_call := _open(self._near(thread, low, high)[1], at)) is not None:
            return cause, "os_call", os_call[3]
        return cause, self.scheduled(at, thread), None

    def scheduled(self, at: int, thread: int) -> str:
        """Return whether a thread was off its core, running, or unknown, at an instant."""
        # A switch off one core and onto another at one instant: it is on one.
        switches = self.switches[thread]
        place = bisect_right(switches, (at, 2))
        return "unknown" if not place else "running" if switches[place - 1][1] else "off_core"

    def pieces(self) -> Iterator[tuple[int, int, Stretch]]:
        """Yield all exposed time in pieces in which nothing changes."""
        for stretch in self.exposed:
            start, end, *threads = stretch
            rows = [row for thread in threads if thread for row in self._near(thread, start, end)]
            edges = {edge for row in [*chain(*rows), *self.profiler] for edge in row[:2]}
            edges |= {at for at, *_ in self.switches[threads[0]]} | {start, end}
            inside = sorted(edge for edge in edges if start <= edge <= end)
            yield from ((low, high, stretch) for low, high in pairwise(inside))

    def times(self) -> Counter[tuple[int, str, str, str | None]]:
        """Return the time of each thread, cause, state and function."""
        times: Counter[tuple[int, str, str, str | None]] = Counter()
        for low, high, stretch in self.pieces():
            times[(stretch[2] & 0xFFFFFF, *self.state(low, stretch))] += high - low
        return times

    def on_core_ns(self) -> Counter[tuple[int, str]]:
        """Return for how long each thread was on a core in each state, as far as is known."""
        times: Counter[tuple[int, str]] = Counter()
        for low, high, stretch in self.pieces():
            if self.scheduled(low, stretch[2]) == "running":
                times[stretch[2] & 0xFFFFFF, self.state(low, stretch)[1]] += high - low
        return times

    @cached_property
    def sampled(self) -> list[tuple[int, int, str, int]]:
        """Return thread, id, state and time of the periodic samples in exposed time."""
        inside = []
        for at, thread, identity in self.samples:
            for stretch in self.exposed:
                if stretch[0] <= at < stretch[1] and thread == stretch[2]:
                    _, state, _ = self.state(at, stretch)
                    if state in ("cuda_call", "running"):
                        inside.append((thread & 0xFFFFFF, identity, state, at))
        return inside


def _by_thread(rows: list[Any], place: int) -> defaultdict[int, list[Any]]:
    """Return the rows of each thread by their first value, then the larger of the second."""
    threads = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row[0], -row[1])):
        threads[row[place]].append(row)
    return threads


def _open(rows: list[Any], at: int) -> Any | None:
    """Return the outermost row that is open at an instant: of those, the first that began."""
    return next((row for row in rows if row[0] <= at < row[1]), None)
