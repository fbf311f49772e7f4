"""One process on a machine: threads that launch into streams, and what a profile holds of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nsys_llm.profile.tables import Table

US = 1_000
_COLUMNS = ("start_ns", "end_ns", "device_id", "stream_id", "launch_row", "correlation_id")


@dataclass
class Process:
    """Calls are added in the order of time of each thread; streams run in order.

    `keep` says of each operation whether the profile has its row, by number of the call.
    """

    names: list[str] = field(default_factory=list)
    calls: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    ops: list[tuple[str, int, int, int, int]] = field(default_factory=list)  # table, stream
    waits: list[tuple[int, int]] = field(default_factory=list)  # call, stream
    free_ns: dict[int, int] = field(default_factory=dict)
    now_ns: dict[int, int] = field(default_factory=dict)

    def call(self, name: str, *, tid: int = 1, ns: int = 4 * US, error: int = 0) -> int:
        """Make a call; return its number."""
        if name not in self.names:
            self.names.append(name)
        start = self.now_ns.get(tid, 1_000 * US)
        self.now_ns[tid] = start + ns + US
        self.calls.append((start, start + ns, tid, self.names.index(name), error))
        return len(self.calls) - 1

    def work(
        self,
        name: str = "cudaLaunchKernel_v7000",
        *,
        stream: int = 7,
        tid: int = 1,
        ns: int = 20 * US,
        table: str = "kernels",
        row: bool = True,
        after_ns: int = 0,
    ) -> int:
        """Launch an operation that runs for so long; without `row` the profile lacks it."""
        number = self.call(name, tid=tid)
        start = max(self.calls[number][1] + 3 * US, self.free_ns.get(stream, 0), after_ns)
        self.free_ns[stream] = start + ns
        self.ops.append((table if row else "", number, stream, start, start + ns))
        return number

    def wait(
        self, stream: int | None = 7, *, tid: int = 1, name: str = "", row: bool = True
    ) -> int:
        """Wait for a stream, or all of them."""
        name = name or ("cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize")
        ends = self.free_ns.values() if stream is None else [self.free_ns.get(stream, 0)]
        now = self.now_ns.get(tid, 1_000 * US)
        number = self.call(name, tid=tid, ns=max(3 * US, max(ends, default=0) - now))
        if row and stream is not None:
            self.waits.append((number, stream))
        return number

    def tables(self, end_ns: int | None = None):
        """Return what a capture holds that ends then: calls, operations, names, waits.

        With the number of calls of work that ended before and has no row, and of that which did
        not end.
        """
        there = [i for i, call in enumerate(self.calls) if end_ns is None or call[1] <= end_ns]
        place = {number: row for row, number in enumerate(there)}
        rows = np.array([self.calls[i] for i in there], dtype=np.int64).reshape(-1, 5)
        names = ("start_ns", "end_ns", "global_tid", "name_id", "return_value")
        calls = Table(dict(zip(names, rows.T, strict=True)))
        calls = calls.plus(correlation_id=np.array(there, dtype=np.int64))
        over = [op for op in self.ops if op[1] in place and (end_ns is None or op[4] <= end_ns)]
        tables = {}
        for table in ("kernels", "memcpys", "graph_traces"):
            op = [
                (start, end, 0, stream, place[number], number)
                for name, number, stream, start, end in over
                if name == table
            ]
            columns = np.array(op, dtype=np.int64).reshape(-1, 6).T
            tables[table] = Table(dict(zip(_COLUMNS, columns, strict=True)))
        waits = [(0, stream, number) for number, stream in self.waits if number in place]
        columns = np.array(waits, dtype=np.int64).reshape(-1, 3).T
        names = ("device_id", "stream_id", "correlation_id")
        lost = {op[1] for op in over if not op[0]}
        late = {op[1] for op in self.ops if op[1] in place} - {op[1] for op in over}
        strings = dict(enumerate(self.names))
        return (calls, tables, strings, Table(dict(zip(names, columns, strict=True)))), lost, late
