"""Host events of synthetic reports, and what is measured beside: memory, metrics, waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike
from trace_rows import RowTraceBuilder

from nsys_llm.taxonomy.cuda_codes import ALLOCATION, FREE, MEMORY_KINDS
from nsys_llm.testing.trace_schema import Cells
from nsys_llm.testing.trace_store import IntArray, Queue, Thread

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

#: Codes of ENUM_NSYS_EVENT_CLASS.
_OS_RUNTIME, _GRAPH_NODE, _CUDA_OVERHEAD = 27, 77, 103
#: Overhead types that are the application's own: JIT, module and lazy loading, full command buffer.
_APPLICATION_OVERHEADS: Final = frozenset({2, 6, 7, 8})
#: Above the bits of a metric's type id that hold the GPU's number; any number would do.
_METRIC_TYPE: Final = 0x100
#: What stands for "no event" and "no stream" in a wait's row.
NOT_APPLICABLE: Final = 4_294_967_295

WaitKind = Literal["event", "stream_wait", "stream", "context", "query"]

#: By kind of wait: the code of its table ENUM_CUPTI_SYNC_TYPE, and a call that makes such a row, by
#: which versions that use other codes are known.
_SYNC_TYPES: Final[dict[WaitKind, tuple[int, str]]] = {
    "event": (1, "cudaEventSynchronize"),
    "query": (1, "cudaEventQuery"),
    "stream_wait": (2, "cudaStreamWaitEvent"),
    "stream": (3, "cudaStreamSynchronize"),
    "context": (4, "cudaDeviceSynchronize"),
}


def event_end_ns(start_ns: int, duration_ns: int | None, end_ns: int | None) -> int:
    """Return the end of an event from its duration or its end, ns; exactly one must be given."""
    if duration_ns is not None and end_ns is None:
        return start_ns + duration_ns
    if end_ns is not None and duration_ns is None:
        return end_ns
    raise ValueError("give either duration_ns or end_ns.")


class HostTraceBuilder(RowTraceBuilder):
    """A report whose host events, and waits, are added; calls that wait are added apart."""

    def api(
        self,
        name: str,
        *,
        start_ns: int,
        duration_ns: int | None = None,
        end_ns: int | None = None,
        correlation_id: int | None = None,
        **more: Any,
    ) -> Self:
        """Add a CUDA API call, by its name with version suffix; see `apis`."""
        return self.apis(
            [name],
            [0],
            start_ns=[start_ns],
            end_ns=[event_end_ns(start_ns, duration_ns, end_ns)],
            correlation_ids=None if correlation_id is None else [correlation_id],
            **more,
        )

    def call_stack(self, frames: Sequence[str], *, module: str = "/usr/lib/libapp.so") -> int:
        """Add a call stack of API calls, innermost frame first, and return its id.

        Args:
            frames: Names of functions; a name that begins with 0x is an address without a symbol.
            module: Library that they all lie in.
        """
        identity = self._rows_n("CUDA_CALLCHAINS") + 1
        columns: dict[str, Cells] = {
            "id": identity,
            "symbol": self._string_ids(frames),
            "module": self._string_id(module),
            "unresolved": [1 if name.startswith("0x") else None for name in frames],
            "stackDepth": list(range(len(frames))),
        }
        self._add("CUDA_CALLCHAINS", len(frames), columns)
        return identity

    def nvtx(self, text: str, start_ns: int, end_ns: int | None = None, **more: Any) -> Self:
        """Add an NVTX range or mark; see `nvtx_ranges`."""
        return self.nvtx_ranges([text], start_ns=[start_ns], end_ns=[end_ns], **more)

    def osrt(
        self,
        name: str,
        *,
        start_ns: int,
        duration_ns: int | None = None,
        end_ns: int | None = None,
        frames: Sequence[str] = (),
        **thread: Unpack[Thread],
    ) -> Self:
        """Add a call into the operating system's libraries; `frames`, innermost first."""
        identity = self._rows_n("OSRT_CALLCHAINS") + 1
        stack: dict[str, Cells] = {
            "id": identity,
            "symbol": self._string_ids(frames),
            "module": self._string_id("/usr/bin/python3.12"),
            "stackDepth": list(range(len(frames))),
        }
        if frames:
            self._add("OSRT_CALLCHAINS", len(frames), stack)
        columns: dict[str, Cells] = {
            "start": start_ns,
            "end": event_end_ns(start_ns, duration_ns, end_ns),
            "eventClass": _OS_RUNTIME,
            "nameId": self._string_id(name),
            "nestingLevel": 0,
            "globalTid": self._thread(**thread),
            "callchainId": identity if frames else 0,
        }
        return self._add("OSRT_API", 1, columns)

    def thread_switch(
        self, *, start_ns: int, goes_on: bool, cpu: int = 0, **thread: Unpack[Thread]
    ) -> Self:
        """Add a thread's going onto a core, or leaving it."""
        columns: dict[str, Cells] = {
            "start": start_ns,
            "cpu": cpu,
            "isSchedIn": int(goes_on),
            "globalTid": self._thread(**thread),
        }
        return self._add("SCHED_EVENTS", 1, columns)

    def cpu_sample(
        self,
        frames: Sequence[tuple[str, str]] = (),
        *,
        start_ns: int,
        in_kernel: int | None = 0,
        cycles: int = 1,
        **thread: Unpack[Thread],
    ) -> Self:
        """Add a sample of a thread.

        Args:
            frames: Function and file of each frame, innermost first; without any, it has no stack.
            in_kernel: Whether the innermost frame is in the kernel; None as older releases write.
            cycles: 1 for a periodic sample, 0 for the stack of a switch.
        """
        identity = self._rows_n("COMPOSITE_EVENTS") + 1
        columns: dict[str, Cells] = {
            "id": identity,
            "start": start_ns,
            "threadState": 1,
            "globalTid": self._thread(**thread),
            "cpuCycles": cycles,
        }
        self._add("COMPOSITE_EVENTS", 1, columns)
        if not frames:
            return self
        depth = list(range(len(frames)))
        if identity % 2:  # in any order
            frames, depth = frames[::-1], depth[::-1]
        stack: dict[str, Cells] = {
            "id": identity,
            "symbol": self._string_ids([name for name, _ in frames]),
            "module": self._string_ids([module for _, module in frames]),
            "kernelMode": [0 if nth else in_kernel for nth in depth],
            "unresolved": [1 if name.startswith("0x") else None for name, _ in frames],
            "stackDepth": depth,
        }
        return self._add("SAMPLING_CALLCHAINS", len(frames), stack)

    def overhead(
        self,
        name: str,
        *,
        start_ns: int,
        duration_ns: int | None = None,
        end_ns: int | None = None,
        overhead_type: int = 1,
        **thread: Unpack[Thread],
    ) -> Self:
        """Add overhead: the profiler's own, or the application's for types 2, 6, 7 and 8.

        Exports before 2026.1 have no table for the latter, which then raises a ValueError.
        """
        columns: dict[str, Cells] = {
            "start": start_ns,
            "end": event_end_ns(start_ns, duration_ns, end_ns),
            "eventClass": _CUDA_OVERHEAD,
            "nameId": self._string_id(name),
            "overheadType": overhead_type,
            "globalTid": self._thread(**thread),
        }
        of_application = overhead_type in _APPLICATION_OVERHEADS
        return self._add(
            "CUPTI_ACTIVITY_KIND_OVERHEAD" if of_application else "PROFILER_OVERHEAD", 1, columns
        )

    def graph_node(
        self,
        node_id: int,
        *,
        start_ns: int,
        original_node_id: int | None = None,
        name: str = "Graph Node Creation",
        **thread: Unpack[Thread],
    ) -> Self:
        """Add the creation of a graph's node, or its copy into an executable graph."""
        new = "CUDA_GRAPH_NODE_EVENTS"
        columns: dict[str, Cells] = {
            "start": start_ns,
            "end": start_ns,
            "eventClass": _GRAPH_NODE,
            "nameId": self._string_id(name),
            "graphNodeId": node_id,
            "originalGraphNodeId": original_node_id,
            "globalTid": self._thread(**thread),
        }
        return self._add(new if self.has_table(new) else "CUDA_GRAPH_EVENTS", 1, columns)

    def allocate(
        self,
        size_bytes: int,
        *,
        address: int,
        at_ns: int,
        memory: str = "device",
        device_id: int = 0,
        pool_bytes: int | None = None,
        call: tuple[int, int] | None = None,
        api: str = "cudaMalloc_v3020",
        operation: int = ALLOCATION,
        **thread: Unpack[Thread],
    ) -> Self:
        """Add an allocation, and the API call that made it where `call` is its (start, end), ns."""
        pid = thread.get("pid")
        identity = self._correlation_id(None, pid)
        columns: dict[str, Cells] = {
            "start": at_ns,
            "bytes": size_bytes,
            "address": address,
            "memKind": MEMORY_KINDS.index(memory),
            "memoryOperationType": operation,
            "correlationId": identity,
            "localMemoryPoolSize": pool_bytes,
            "deviceId": device_id,
            "contextId": device_id + 1,
            "globalPid": self._thread(pid, 0),
        }
        self._add("CUDA_GPU_MEMORY_USAGE_EVENTS", 1, columns)
        if call is None:
            return self
        start_ns, end_ns = call
        return self.api(api, start_ns=start_ns, end_ns=end_ns, correlation_id=identity, **thread)

    def free(self, size_bytes: int, *, address: int, at_ns: int, **more: Any) -> Self:
        more = {"api": "cudaFree_v3020", "operation": FREE, **more}
        return self.allocate(size_bytes, address=address, at_ns=at_ns, **more)

    def gpu_metrics(
        self,
        metrics: Mapping[str, Sequence[int]],
        *,
        times_ns: Sequence[int],
        gpu_id: int = 0,
    ) -> Self:
        """Add samples of metrics of one GPU, all taken together.

        Args:
            metrics: Values by metric, one for each of `times_ns`.
            gpu_id: Of the physical GPU.
        """
        count = len(times_ns)
        for metric_id, (name, values) in enumerate(metrics.items()):
            identity: dict[str, Cells] = {
                "typeId": (_METRIC_TYPE << 8) | gpu_id,
                "metricId": metric_id,
            }
            self._add(
                "TARGET_INFO_GPU_METRICS",
                1,
                {**identity, "sourceId": 1, "typeName": f"GPU {gpu_id}", "metricName": name},
            )
            samples = {"timestamp": np.asarray(times_ns), "value": np.asarray(values)}
            self._add("GPU_METRICS", count, {**identity, **samples})
        return self

    def waits(
        self,
        kind: WaitKind,
        *,
        start_ns: ArrayLike,
        end_ns: ArrayLike,
        correlation_ids: ArrayLike,
        stream_ids: ArrayLike = NOT_APPLICABLE,
        event_ids: ArrayLike = NOT_APPLICABLE,
        event_sync_ids: ArrayLike = 0,
        pid: int | None = None,
        device_id: int = 0,
    ) -> Self:
        """Add rows of CUPTI_ACTIVITY_KIND_SYNCHRONIZATION.

        Args:
            start_ns: Shape (n,), as all or one for all; the rows lie inside their calls.
            stream_ids: That wait, or are waited for.
            event_ids: Events, which are reused.
            event_sync_ids: Records of events, which are unique. Exports before 2026.1 have none.
        """
        code, api = _SYNC_TYPES[kind]
        count = np.size(correlation_ids)
        columns: dict[str, Cells] = {
            "start": _spread(start_ns, count),
            "end": _spread(end_ns, count),
            "syncType": self._schema.sync_codes.get(api, code),
            "eventId": _spread(event_ids, count),
            "eventSyncId": _spread(event_sync_ids, count),
            "correlationId": _spread(correlation_ids, count),
            "deviceId": device_id,
            "contextId": device_id + 1,
            "greenContextId": self._schema.no_green_context,
            "streamId": _spread(stream_ids, count),
            "globalPid": self._thread(pid, 0),
        }
        return self._add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", count, columns)

    def event_records(
        self,
        *,
        event_ids: ArrayLike,
        event_sync_ids: ArrayLike,
        correlation_ids: ArrayLike,
        **queue: Unpack[Queue],
    ) -> Self:
        """Add rows of CUPTI_ACTIVITY_KIND_CUDA_EVENT: events recorded in streams; see `waits`."""
        count = np.size(correlation_ids)
        columns: dict[str, Cells] = {
            "timestamp": 0,
            "eventId": _spread(event_ids, count),
            "eventSyncId": _spread(event_sync_ids, count),
            "correlationId": _spread(correlation_ids, count),
        }
        return self._add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", count, columns | self._place(**queue))


def _spread(values: ArrayLike, count: int) -> IntArray:
    return np.broadcast_to(np.asarray(values, dtype=np.int64), count)
