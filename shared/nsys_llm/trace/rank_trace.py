"""The rows of one rank, as every analysis gets them, and which rows have times that can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import (
    IntArray,
    clipped_lengths,
    merged_unions,
    starts_inside,
    union_intervals,
)
from nsys_llm.profile.tables import Table, Trace
from nsys_llm.taxonomy.cuda_codes import ALLOCATION, FREE

#: Tables of GPU operations, and what one of their rows is called in outputs.
OP_TABLES: Final = {
    "kernels": "kernel",
    "memcpys": "memcpy",
    "memsets": "memset",
    "graph_traces": "graph",
}

#: Tables of calls on the host, which have start_ns, end_ns and global_tid.
HOST_TABLES: Final = ("api_calls", "os_calls")

#: Tables of overhead, which have the same columns.
OVERHEAD_TABLES: Final = ("profiler_overheads", "cuda_overheads")

#: Tables of nodes of CUDA graphs: what older exports call CUDA_GRAPH_EVENTS holds graphs, and no
#: nodes, in newer ones.
GRAPH_NODE_TABLES: Final = ("graph_node_events", "old_graph_node_events")

#: 104 days: no capture is as long, and a thousand such times still fit into a sum.
LARGEST_TIME_NS: Final = 1 << 53
#: What is wrong with rows of GPU work that are left out.
BROKEN_ROWS: Final = (
    "end before start, no time or device, or a time before or a minute after the capture"
)


@dataclass(frozen=True)
class RankTrace:
    """The rows of one rank that the filters leave, and the time that they speak of.

    Attributes:
        tables: By our names. Operations have end >= start and reach into the windows; each
            operation table has a column `launch_row`, the row of the API call that launched it in
            `tables["api_calls"]`, or -1.
        windows_ns: Shape (n, 2), sorted, disjoint, the profile's clock; None without a time filter.
        device_ids: The CUDA devices of the rank that --device leaves, sorted; the other filters
            may leave one of them without an operation.
        chosen: For tables of `HOST_TABLES`, which calls start in the NVTX ranges that the filters
            name, shape (rows,), bool; a table that is not there: all do. `tables` keep all calls,
            since `launch_row` counts in them.
        kept: Which rows of `unfiltered` are in `tables`, shape (rows,), bool.
        timeless: Rows of the API calls whose operations are left out for their times.
    """

    tables: Mapping[str, Table]
    strings: Mapping[int, str]
    windows_ns: IntArray | None
    unfiltered: Mapping[str, Table]
    device_ids: tuple[int, ...]
    chosen: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    kept: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    there_n: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    timeless: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @cached_property
    def gpu_busy(self) -> IntArray:
        """When any operation ran on any of `device_ids`: shape (n, 2), sorted and disjoint.

        Before any other filter: what else the GPU did then, it was not idle.
        """
        spans = []
        for op in self.unfiltered.values():
            there = np.isin(op["device_id"], self.device_ids)
            rows = slice(None) if there.all() else there
            # Each table by itself first: one that comes in order of time needs no sorting.
            spans.append(union_intervals(op["start_ns"][rows], op["end_ns"][rows]))
        return merged_unions(spans)

    @cached_property
    def capture(self) -> IntArray | None:
        """The span of the capture, shape (1, 2); None where it is not recorded.

        It begins at 0. Operations outside say that it was longer.
        """
        lengths = self.tables.get("capture_spans")
        if lengths is None or not len(lengths):
            return None
        low, high = 0, int(lengths["duration_ns"].max())
        for op in self.unfiltered.values():
            low = min(low, int(op["start_ns"].min(initial=low)))
            high = max(high, int(op["end_ns"].max(initial=high)))
        return np.array([[low, high]], dtype=np.int64)

    @property
    def last_end_ns(self) -> int:
        """When the last operation of the rank ended, whatever the filters leave; 0 without any."""
        ends = (int(op["end_ns"].max()) for op in self.unfiltered.values() if len(op))
        return max(ends, default=0)

    @property
    def complete(self) -> bool:
        """Whether the filters leave every operation of the rank."""
        return all(len(self.tables[name]) == len(op) for name, op in self.unfiltered.items())

    def device_ops(self, device: int) -> dict[str, Table]:
        """Return the operations of a device that the filters leave, by table."""
        ops = {name: self.tables[name] for name in OP_TABLES if name in self.tables}
        return {name: op.take(op["device_id"] == device) for name, op in ops.items()}

    def device_span(self, device: int) -> IntArray:
        """Return from the first to the last operation of `device_ops`: shape (1 or 0, 2)."""
        if device not in self._spans:
            self._spans[device] = self._span(device)
        return self._spans[device]

    @cached_property
    def _spans(self) -> dict[int, IntArray]:
        return {}

    def _span(self, device: int) -> IntArray:
        first, last = [], []
        for op in (self.tables[name] for name in OP_TABLES if name in self.tables):
            there = op["device_id"] == device
            rows = slice(None) if there.all() else there  # the common case, which needs no copies
            starts, ends = op["start_ns"][rows], op["end_ns"][rows]
            if starts.size:
                first.append(int(starts.min()))
                last.append(int(ends.max()))
        return np.array([[min(first), max(last)]] if first else [], dtype=np.int64).reshape(-1, 2)

    def device_windows(self, device: int) -> IntArray:
        """Return the windows of a time filter, else `device_span`: shape (n, 2)."""
        return self.device_span(device) if self.windows_ns is None else self.windows_ns

    def starts_inside(self, op: Table) -> npt.NDArray[np.bool_]:
        """Return which operations start in the windows, and so count as launches."""
        if self.windows_ns is None:
            return np.ones(len(op), dtype=bool)
        return starts_inside(op["start_ns"], self.windows_ns)

    def clipped_ns(self, op: Table) -> IntArray:
        """Return the time of each operation inside the windows."""
        if self.windows_ns is None:
            return np.asarray(op["end_ns"] - op["start_ns"])
        return clipped_lengths(op["start_ns"], op["end_ns"], self.windows_ns)

    def host_calls(
        self, name: str, extra: Mapping[str, IntArray] | None = None
    ) -> tuple[Table, Table]:
        """Return the calls of a table of `HOST_TABLES` that the filters leave, and the broken ones.

        A call is left if it reaches into the windows and starts in the NVTX ranges that a filter
        names; `--device` leaves them all.
        """
        calls = self.tables[name].plus(**(extra or {}))
        keep = sane_times(calls["start_ns"], calls["end_ns"])
        broken = calls.take(~keep)
        if name in self.chosen:
            keep &= self.chosen[name]
        calls = calls.take(keep)
        if self.windows_ns is not None:
            calls = calls.take((self.clipped_ns(calls) > 0) | self.starts_inside(calls))
        return calls, broken


def sane_times(start_ns: IntArray, end_ns: IntArray) -> npt.NDArray[np.bool_]:
    """Return which rows have times, and do not end before they start."""
    # NULL is far below; times as large would overflow in a difference or a sum.
    in_range = (start_ns > -LARGEST_TIME_NS) & (end_ns < LARGEST_TIME_NS)
    return np.asarray(in_range & (end_ns >= start_ns))


def sane_instants(at_ns: IntArray) -> npt.NDArray[np.bool_]:
    """Return which instants a capture can have: NULL is none."""
    return sane_times(at_ns, at_ns)


#: No GPU has a petabyte; larger sizes are damage, and a thousand of them would outgrow 64 bits.
_LARGEST_BYTES: Final = 1 << 50
#: Work that was queued ends after the last call and the end of the capture; ours, and far above
#: what any queue holds.
_QUEUED_NS: Final = 60_000_000_000


def latest_end_ns(trace: Trace) -> int:
    """Return the time after which no operation of a profile can end, on its clock.

    A minute after the end of the capture, where its length is recorded, else after the last API
    call.
    """
    lengths, calls = trace.tables.get("capture_spans"), trace.tables.get("api_calls")
    if lengths is not None and len(lengths):
        return int(lengths["duration_ns"].max()) + _QUEUED_NS
    if calls is None or not len(calls) or not {"start_ns", "end_ns"} <= set(calls.columns):
        return LARGEST_TIME_NS
    ends = calls["end_ns"]
    last_ns = int(ends.max(where=sane_times(calls["start_ns"], ends), initial=NULL_INT))
    return LARGEST_TIME_NS if last_ns == NULL_INT else last_ns + _QUEUED_NS


def recorded_ns(trace: Trace) -> tuple[int, int] | None:
    """Return when the first operation, call or range of a profile begins and the last one ends."""
    edges: list[tuple[int, int]] = []
    for name in (*OP_TABLES, "api_calls", "nvtx_events"):
        table = trace.tables.get(name, Table({}))
        if len(table) and {"start_ns", "end_ns"} <= set(table.columns):
            starts, ends = table["start_ns"], table["end_ns"]
            sane = sane_times(starts, ends) & (starts >= 0) & (ends > 0)
            if sane.any():
                edges.append((int(starts[sane].min()), int(ends[sane].max())))
    return (min(low for low, _ in edges), max(high for _, high in edges)) if edges else None


def sound_rows(op: Table, latest_ns: int) -> npt.NDArray[np.bool_]:
    """Return which operations have times and a device.

    Times count from the start of the session. A start and an end of 0 are CUPTI's word for times
    that were not collected.
    """
    starts, ends = op["start_ns"], op["end_ns"]
    sound = sane_times(starts, ends) & (starts >= 0) & (ends > 0) & (ends <= latest_ns)
    return np.asarray(sound & (op["device_id"] != NULL_INT))


def sane_memory_events(events: Table) -> npt.NDArray[np.bool_]:
    """Return which events are allocations or frees with a time, a size and a device."""
    size = events["size_bytes"]
    sane = sane_instants(events["start_ns"]) & (size >= 0) & (size < _LARGEST_BYTES)
    sane &= events["device_id"] != NULL_INT
    return np.asarray(sane & np.isin(events["operation"], (ALLOCATION, FREE)))
