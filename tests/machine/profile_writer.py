"""Writes a simulated job as Nsight Systems would have recorded it: a profile for each rank.

Profiles hold nothing of the truth but what a capture sees. What starts before a rank's capture is
left out, calls, operations and ranges each by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from trace_builder import Place, TraceBuilder
from trace_host import NOT_APPLICABLE

from machine.outcome import Activity, Operation, Outcome

_FIRST_PID: Final = 5001
_EPOCH_NS: Final = 1_760_000_000_000_000_000
#: Most of what a wait's row leaves of its call on each side.
_ROW_MARGIN_NS: Final = 200

#: What functions of the runtime call of the driver, where such calls are recorded too.
_DRIVER_CALLS: Final = {
    "cudaLaunchKernel_v7000": "cuLaunchKernel",
    "cudaGraphLaunch_v10000": "cuGraphLaunch",
    "cudaMalloc_v3020": "cuMemAlloc_v2",
    "cudaDeviceSynchronize_v3020": "cuCtxSynchronize",
}

#: Overheads by the class of a part of a call.
_OVERHEADS: Final = {
    "back_pressure": ("Command Buffer Full", 8),
    "module_load": ("Lazy Function Loading", 7),
}


def write_profiles(
    outcome: Outcome,
    folder: Path,
    *,
    event_rows: bool = True,
    sync_rows: bool = True,
    nested: bool = False,
    schema: str = "3.25.0",
) -> list[Path]:
    """Write `rank<N>.sqlite` for each rank and return the files in the order of ranks.

    Args:
        folder: Where to; made if it is not there.
        event_rows: Whether events were traced (`--cuda-event-trace=true`): rows of CUDA_EVENT.
        sync_rows: Whether there are rows of SYNCHRONIZATION.
        nested: Whether calls of the driver are recorded inside of those of the runtime.

    Raises:
        OutputError: A file is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [
        rank_profile(
            outcome, rank, event_rows=event_rows, sync_rows=sync_rows, nested=nested, schema=schema
        ).write_sqlite(folder / f"rank{rank}.sqlite")
        for rank in range(outcome.program.ranks_n)
    ]


def rank_profile(
    outcome: Outcome,
    rank: int,
    *,
    event_rows: bool = True,
    sync_rows: bool = True,
    nested: bool = False,
    schema: str = "3.25.0",
) -> TraceBuilder:
    """Return the profile of one rank, to which more may be added; see `write_profiles`."""
    program = outcome.program
    instruction = program.ranks[rank]
    pid = _FIRST_PID + rank
    devices_n = 1 + max((op.device for op in outcome.operations[rank]), default=0)
    ahead_ns = instruction.capture_ns + instruction.clock_error_ns
    report = TraceBuilder(
        schema=schema,
        hostname=instruction.host or f"node-{rank:04d}",
        utc_epoch_ns=_EPOCH_NS + ahead_ns,
        system_clock_ns=1_000_000_000_000 + ahead_ns,
    )
    gpus = range(rank * devices_n, (rank + 1) * devices_n)
    report.process(pid=pid, gpu_ids=gpus, blocking_streams=instruction.blocking_streams)
    report.environment(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(program.ranks_n))
    writer = _RankWriter(outcome, rank, report)
    writer.add_calls()
    if nested:
        writer.add_driver_calls()
    writer.add_overheads()
    writer.add_operations()
    writer.add_ranges()
    if sync_rows:
        writer.add_waits()
    if event_rows:
        writer.add_records()
    return report


def shared_profile(outcome: Outcome, *, one_process: bool = False) -> TraceBuilder:
    """Return one profile of all ranks, on the clock of the first.

    Args:
        outcome: A job; in one process its steps must not overlap on the hosts.
        one_process: Whether ranks are devices of one process, a thread each, instead of processes.
            The main thread has the ranges of steps, from the first rank's begin to the next one's.
    """
    program = outcome.program
    report = TraceBuilder(
        schema="3.25.0", hostname=program.ranks[0].host or "node-0000", utc_epoch_ns=_EPOCH_NS
    )
    seats = range(program.ranks_n) if one_process else [0] * program.ranks_n
    for rank, seat in enumerate(seats):
        pid, gpus = _FIRST_PID + rank - seat, range(program.ranks_n) if one_process else [rank]
        writer = _RankWriter(outcome, rank, report.process(pid=pid, gpu_ids=gpus), seat)
        writer.add_calls()
        writer.add_operations()
        writer.add_waits()
        writer.add_records()
        if not one_process:
            writer.add_ranges()
    if one_process:
        begins = [[span.start for span in ranges] for ranges in outcome.ranges]
        starts = [min(some) - program.ranks[0].capture_ns for some in zip(*begins, strict=True)]
        last = max(span.end for ranges in outcome.ranges for span in ranges)
        report.nvtx_ranges(
            [span.text for span in outcome.ranges[0]],
            start_ns=starts,
            end_ns=[*starts[1:], last - program.ranks[0].capture_ns],
            tid=_FIRST_PID,
        )
    return report


class _RankWriter:
    """Writes a rank; `seat` is its first device in a process of several ranks."""

    def __init__(self, outcome: Outcome, rank: int, report: TraceBuilder, seat: int = 0) -> None:
        self.outcome, self.rank, self.report = outcome, rank, report
        self.pid, self.seat = _FIRST_PID + rank - seat, seat
        self.capture_ns = outcome.program.ranks[rank].capture_ns

    def add_calls(self) -> None:
        calls = [call for call in self.outcome.calls(self.rank) if self._recorded(call.start)]
        for thread in sorted({call.thread for call in calls}):
            rows = [call for call in calls if call.thread == thread]
            names = sorted({call.name for call in rows})
            self.report.apis(
                names,
                [names.index(call.name) for call in rows],
                start_ns=self._times(rows, lambda call: call.start),
                end_ns=self._times(rows, lambda call: call.end),
                correlation_ids=[self._id(call) for call in rows],
                tid=self._tid(thread),
            )

    def add_driver_calls(self) -> None:
        """Add a call of the driver inside of each call of the runtime that is known to make one."""
        for call in self.outcome.calls(self.rank):
            margin_ns = (call.end - call.start) // 4
            if call.name in _DRIVER_CALLS and margin_ns and self._recorded(call.start):
                self.report.api(
                    _DRIVER_CALLS[call.name],
                    start_ns=self._seen(call.start + margin_ns),
                    end_ns=self._seen(call.end - margin_ns),
                    tid=self._tid(call.thread),
                )

    def add_overheads(self) -> None:
        """Add what the driver did inside of calls, and the profiler's own work."""
        for thread in self.outcome.threads[self.rank]:
            for act in thread:
                if act.kind == "flush":
                    self._overhead("CUPTI Buffer flush", 3, act, (act.start, act.end))
                for label, start, end in act.parts:
                    if label in _OVERHEADS and self.report.has_table(
                        "CUPTI_ACTIVITY_KIND_OVERHEAD"
                    ):
                        self._overhead(*_OVERHEADS[label], act, (start, end))

    def _overhead(self, name: str, code: int, act: Activity, span: tuple[int, int]) -> None:
        if self._recorded(span[0]):
            self.report.overhead(
                name,
                start_ns=self._seen(span[0]),
                end_ns=self._seen(span[1]),
                overhead_type=code,
                tid=self._tid(act.thread),
            )

    def add_operations(self) -> None:
        operations = [op for op in self.outcome.operations[self.rank] if self._recorded(op.start)]
        for device in sorted({op.device for op in operations}):
            rows = [
                op
                for op in operations
                if op.device == device and op.work.kind in ("kernel", "collective")
            ]
            names = sorted({op.work.name for op in rows})
            self.report.kernels(
                names,
                [names.index(op.work.name) for op in rows],
                start_ns=[self._seen(op.start) for op in rows],
                end_ns=[self._seen(op.end) for op in rows],
                correlation_ids=[self._id(op.call) for op in rows],
                graph_node_ids=[_node_id(op) or 0 for op in rows],
                grid=[(op.work.blocks, 1, 1) for op in rows],
                device_id=device + self.seat,
                context_id=device + self.seat + 1,
                stream_id=np.array([op.stream for op in rows], dtype=np.int64),
            )
        for op in operations:
            if op.work.kind not in ("kernel", "collective"):
                self._add_copy(op)

    def _add_copy(self, op: Operation) -> None:
        start_ns, end_ns = self._seen(op.start), self._seen(op.end)
        place: Place = {
            "device_id": op.device + self.seat,
            "context_id": op.device + self.seat + 1,
            "stream_id": op.stream,
            "correlation_id": self._id(op.call),
            "graph_node_id": _node_id(op),
        }
        size_bytes, kind = op.work.size_bytes, op.work.kind
        if kind == "memset":
            self.report.memset(start_ns=start_ns, end_ns=end_ns, size_bytes=size_bytes, **place)
            return
        self.report.memcpy(
            kind,
            start_ns=start_ns,
            end_ns=end_ns,
            size_bytes=size_bytes,
            src_memory="pageable" if op.work.pageable and kind == "HtoD" else None,
            dst_memory="pageable" if op.work.pageable and kind == "DtoH" else None,
            **place,
        )

    def add_ranges(self) -> None:
        ranges = [span for span in self.outcome.ranges[self.rank] if self._recorded(span.start)]
        for thread in sorted({span.thread for span in ranges}):
            rows = [span for span in ranges if span.thread == thread]
            self.report.nvtx_ranges(
                [span.text for span in rows],
                start_ns=[self._seen(span.start) for span in rows],
                end_ns=[self._seen(span.end) for span in rows],
                tid=self._tid(thread),
            )

    def add_waits(self) -> None:
        for kind, call in self.outcome.syncs[self.rank]:
            if not self._recorded(call.start):
                continue
            margin_ns = min(_ROW_MARGIN_NS, (call.end - call.start) // 4)
            number, event = call.event or (0, NOT_APPLICABLE)
            self.report.waits(
                kind,
                start_ns=[self._seen(call.start + margin_ns)],
                end_ns=[self._seen(call.end - margin_ns)],
                correlation_ids=[self._id(call)],
                stream_ids=call.stream if call.stream >= 0 else NOT_APPLICABLE,
                event_ids=event,
                event_sync_ids=number,
                device_id=call.device + self.seat,
            )

    def add_records(self) -> None:
        """Add a row for each record of an event."""
        for call in self.outcome.records[self.rank]:
            if self._recorded(call.start) and call.event is not None:
                self.report.event_records(
                    event_ids=[call.event[1]],
                    event_sync_ids=[call.event[0]],
                    correlation_ids=[self._id(call)],
                    device_id=call.device + self.seat,
                    context_id=call.device + self.seat + 1,
                    stream_id=call.stream,
                )

    def _tid(self, thread: int) -> int:
        return self.pid + 100 * self.seat + thread

    def _id(self, call: Activity) -> int:
        return 1_000_000 * self.seat + call.correlation

    def _recorded(self, start_ns: int) -> bool:
        return start_ns >= self.capture_ns

    def _seen(self, ns: int) -> int:
        """Return what the rank's clock shows at an instant of the job's."""
        ahead = 0
        rates = self.outcome.program.ranks[self.rank].rates
        for (from_ns, ppm), (until_ns, _) in pairwise([*rates, (ns, 0)]):
            ahead += max(0, min(ns, until_ns) - from_ns) * ppm // 1_000_000
        return ns - self.capture_ns + ahead

    def _times(self, calls: Sequence[Activity], time: Callable[[Activity], int]) -> list[int]:
        return [self._seen(time(call)) for call in calls]


def _node_id(op: Operation) -> int | None:
    return None if op.node is None else (op.node[0] << 32) | (op.node[1] + 1)
