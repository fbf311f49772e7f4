"""Events on the host for a synthetic report: API calls, NVTX ranges, overhead, OS calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from trace_rows import RowTraceBuilder

from nsys_llm.testing.trace_schema import Cells
from nsys_llm.testing.trace_store import Thread

if TYPE_CHECKING:
    from typing_extensions import Unpack


_Builder = TypeVar("_Builder", bound="HostTraceBuilder")

#: Codes of ENUM_NSYS_EVENT_CLASS.
_OS_RUNTIME, _GRAPH_NODE, _CUDA_OVERHEAD = 27, 77, 103

#: Overhead types that are the application's own: JIT, module and lazy loading, full command buffer.
_APPLICATION_OVERHEADS: Final = frozenset({2, 6, 7, 8})


def event_end_ns(start_ns: int, duration_ns: int | None, end_ns: int | None) -> int:
    """Return the end of an event from its duration or its end, ns; exactly one must be given."""
    if duration_ns is not None and end_ns is None:
        return start_ns + duration_ns
    if end_ns is not None and duration_ns is None:
        return end_ns
    raise ValueError("give either duration_ns or end_ns.")


class HostTraceBuilder(RowTraceBuilder):
    """A report whose host events are added one by one."""

    def api(
        self: _Builder,
        name: str,
        *,
        start_ns: int,
        duration_ns: int | None = None,
        end_ns: int | None = None,
        correlation_id: int | None = None,
        callchain_id: int | None = None,
        return_value: int = 0,
        **thread: Unpack[Thread],
    ) -> _Builder:
        """Add a CUDA API call, by its name with version suffix."""
        return self.apis(
            [name],
            [0],
            start_ns=[start_ns],
            end_ns=[event_end_ns(start_ns, duration_ns, end_ns)],
            correlation_ids=None if correlation_id is None else [correlation_id],
            callchain_id=callchain_id,
            return_value=return_value,
            **thread,
        )

    def call_stack(self, frames: Sequence[str], *, module: str = "/usr/lib/libapp.so") -> int:
        """Add a call stack of API calls, innermost frame first, and return its id.

        Args:
            frames: Names of functions; a name that begins with 0x is an address without a symbol.
            module: Library that they all lie in.
        """
        table = "CUDA_CALLCHAINS"
        identity = 1 + sum(count for count, _ in self._tables[table].chunks)
        columns: dict[str, Cells] = {
            "id": identity,
            "symbol": self._string_ids(frames),
            "module": self._string_id(module),
            "unresolved": [1 if name.startswith("0x") else None for name in frames],
            "stackDepth": list(range(len(frames))),
        }
        self._add(table, len(frames), columns)
        return identity

    def nvtx(
        self: _Builder,
        text: str,
        start_ns: int,
        end_ns: int | None = None,
        *,
        kind: Literal["push_pop", "start_end", "mark"] = "push_pop",
        domain: str = "",
        registered: bool = False,
        end_tid: int | None = None,
        **thread: Unpack[Thread],
    ) -> _Builder:
        """Add an NVTX range or mark; see `nvtx_ranges`."""
        return self.nvtx_ranges(
            [text],
            start_ns=[start_ns],
            end_ns=[end_ns],
            kind=kind,
            domain=domain,
            registered=registered,
            end_tid=end_tid,
            **thread,
        )

    def osrt(
        self: _Builder,
        name: str,
        *,
        start_ns: int,
        duration_ns: int | None = None,
        end_ns: int | None = None,
        frames: Sequence[str] = (),
        **thread: Unpack[Thread],
    ) -> _Builder:
        """Add a call into the operating system's libraries; `frames`, innermost first."""
        table = "OSRT_CALLCHAINS"
        identity = 1 + sum(count for count, _ in self._tables[table].chunks)
        stack: dict[str, Cells] = {
            "id": identity,
            "symbol": self._string_ids(frames),
            "module": self._string_id("/usr/bin/python3.12"),
            "stackDepth": list(range(len(frames))),
        }
        if frames:
            self._add(table, len(frames), stack)
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
        self: _Builder, *, start_ns: int, goes_on: bool, cpu: int = 0, **thread: Unpack[Thread]
    ) -> _Builder:
        """Add a thread's going onto a core, or leaving it."""
        columns: dict[str, Cells] = {
            "start": start_ns,
            "cpu": cpu,
            "isSchedIn": int(goes_on),
            "globalTid": self._thread(**thread),
        }
        return self._add("SCHED_EVENTS", 1, columns)

    def cpu_sample(
        self: _Builder,
        frames: Sequence[tuple[str, str]] = (),
        *,
        start_ns: int,
        in_kernel: int | None = 0,
        cycles: int = 1,
        **thread: Unpack[Thread],
    ) -> _Builder:
        """Add a sample of a thread.

        Args:
            frames: Function and file of each frame, innermost first; without any, it has no stack.
            start_ns: When it was taken.
            in_kernel: Whether the innermost frame is in the kernel; None as older releases write.
            cycles: 1 for a periodic sample, 0 for the stack of a switch.
            thread: Which thread.
        """
        table = "COMPOSITE_EVENTS"
        identity = 1 + sum(count for count, _ in self._tables[table].chunks)
        columns: dict[str, Cells] = {
            "id": identity,
            "start": start_ns,
            "threadState": 1,
            "globalTid": self._thread(**thread),
            "cpuCycles": cycles,
        }
        self._add(table, 1, columns)
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
        self: _Builder,
        name: str,
        *,
        start_ns: int,
        duration_ns: int | None = None,
        end_ns: int | None = None,
        overhead_type: int = 1,
        **thread: Unpack[Thread],
    ) -> _Builder:
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
        self: _Builder,
        node_id: int,
        *,
        start_ns: int,
        original_node_id: int | None = None,
        name: str = "Graph Node Creation",
        **thread: Unpack[Thread],
    ) -> _Builder:
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
