"""The operations of one rank with their launches, and GPU time by the time of the launch. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace, sane_instants

#: Share of the launched GPU time that steps must hold where no engine says what they are; ours.
_LEAST_HELD_PCT: Final = 50


class OpBlock(NamedTuple):
    """Neighboring operations; arrays of shape (rows,), as those of `LaunchedOps`.

    Attributes:
        launched_ns: When the launching call of each began; NULL_INT without one.
    """

    rows: slice
    device_id: IntArray
    start_ns: IntArray
    end_ns: IntArray
    launched_ns: IntArray


@dataclass(frozen=True)
class LaunchedOps:
    """All operations of a rank, before any filter, table by table as in `OP_TABLES`.

    Arrays of shape (operations,), int64, each made when it is asked for first.

    Attributes:
        calls: The API calls of the rank, NULL_INT for a start that no capture can have; None where
            none were traced.
        last_ns: No operation ends and no call starts later.
        load_ns: GPU time that no step is to hold: copies that load a model.
    """

    tables: tuple[Table, ...]
    calls: Table | None
    last_ns: int
    load_ns: int = 0

    @classmethod
    def of(cls, trace: RankTrace) -> LaunchedOps:
        """Line up the operations of a rank."""
        tables = [trace.unfiltered[name] for name in OP_TABLES if name in trace.unfiltered]
        calls = trace.tables.get("api_calls")
        if calls is not None:
            calls = _with_sane_starts(calls) if len(calls) and "start_ns" in calls else None
        last_ns = trace.last_end_ns
        if calls is not None:
            last_ns = max(last_ns, int(calls["start_ns"].max()))
        return cls(tuple(tables), calls, last_ns)

    def __len__(self) -> int:
        return sum(map(len, self.tables))

    def unread(self) -> LaunchedOps:
        """Return the same without the arrays, which are as long as the trace."""
        return LaunchedOps(self.tables, self.calls, self.last_ns)

    def blocks(self) -> Iterator[OpBlock]:
        """Yield all operations, some at a time: none of the arrays is made for all of them."""
        first = 0
        for table in self.tables:
            device_id, starts, ends, row = (
                table[name] for name in ("device_id", "start_ns", "end_ns", "launch_row")
            )
            for some in blocks(len(table)):
                rows = slice(first + some.start, first + some.stop)
                launched_ns = self._launched_ns(row[some])
                yield OpBlock(rows, device_id[some], starts[some], ends[some], launched_ns)
            first += len(table)

    @cached_property
    def start_ns(self) -> IntArray:
        """When each began on the GPU."""
        return self._joined("start_ns")

    def _joined(self, name: str) -> IntArray:
        return joined([table[name] for table in self.tables]).astype(np.int64, copy=False)

    @cached_property
    def launched_ns(self) -> IntArray:
        """When the launching call of each began; NULL_INT without one."""
        return self._launched_ns(self._joined("launch_row"))

    @property
    def last_launched_ns(self) -> int | None:
        """When the last of the launching calls began; None where none is known."""
        if self.calls is None or not len(self):
            return None
        last_ns = max(int(some.launched_ns.max()) for some in self.blocks())
        return None if last_ns == NULL_INT else last_ns

    def _launched_ns(self, row: IntArray) -> IntArray:
        if self.calls is None:
            return np.full(row.shape, NULL_INT, dtype=np.int64)
        at_ns: IntArray = self.calls["start_ns"][row]
        if row.size and int(row.min()) < 0:
            at_ns = np.where(row < 0, NULL_INT, at_ns)
        return at_ns

    @cached_property
    def launched_gpu_ns(self) -> int:
        """GPU time of all operations of which it is known when they were launched, but load_ns."""
        at_ns, until_ns = self._by_time
        known_ns = until_ns[-1] - until_ns[np.searchsorted(at_ns, NULL_INT, side="right")]
        return int(known_ns) - self.load_ns

    def held_ns(self, start_ns: IntArray, end_ns: IntArray) -> int:
        """Return the GPU time launched, by any thread, in some spans that do not overlap."""
        return int(self.each_held_ns(start_ns, end_ns).sum())

    def each_held_ns(self, start_ns: IntArray, end_ns: IntArray) -> IntArray:
        """Return the GPU time launched, by any thread, in each of some spans."""
        at_ns, until_ns = self._by_time
        low, high = (np.searchsorted(at_ns, edges, side="left") for edges in (start_ns, end_ns))
        return np.asarray(until_ns[high] - until_ns[low])

    @cached_property
    def _by_time(self) -> tuple[IntArray, IntArray]:
        """Times of the calls, ascending, and the GPU time launched before each, and in all."""
        if self.calls is None:
            return np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
        of_call, at_ns = self._gpu_ns_by_call(self.calls), self.calls["start_ns"]
        if (at_ns[1:] < at_ns[:-1]).any():
            order = np.argsort(at_ns, kind="stable")
            at_ns, of_call = at_ns[order], of_call[order]
        until_ns = np.zeros(of_call.size + 1, dtype=np.int64)
        np.cumsum(of_call, out=until_ns[1:])
        return at_ns, until_ns

    def _gpu_ns_by_call(self, calls: Table) -> IntArray:
        of_call = np.zeros(len(calls), dtype=np.int64)
        for table in self.tables:
            starts, ends, row = (table[name] for name in ("start_ns", "end_ns", "launch_row"))
            for some in blocks(len(table)):
                rows, took_ns = row[some], ends[some] - starts[some]
                known = rows >= 0
                np.add.at(of_call, rows[known], took_ns[known])
        return of_call


def is_half(held_ns: int, launched_gpu_ns: int) -> bool:
    """Return whether some GPU time is at least half of all that was launched."""
    return held_ns > 0 and 100 * held_ns >= _LEAST_HELD_PCT * launched_gpu_ns


def _with_sane_starts(calls: Table) -> Table:
    """Return the calls, NULL_INT for the starts that no capture can have."""
    starts = calls["start_ns"]
    sane = sane_instants(starts)  # that it has no end does not matter to what it launched
    return calls if sane.all() else calls.plus(start_ns=np.where(sane, starts, NULL_INT))
