"""Small synthetic reports, written as Nsight Systems would export them.

    TraceBuilder().kernel("void k<int>(int)", start_ns=5, duration_ns=8).write_sqlite(path)

Times are int64 ns of the report's own clock. Methods that add events return the builder. Nothing
depends on the clock or on chance: the same calls make the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from trace_host import HostTraceBuilder, event_end_ns

from nsys_llm.taxonomy.cuda_codes import COPY_KINDS, MEMORY_KINDS
from nsys_llm.testing.trace_schema import Cells
from nsys_llm.testing.trace_store import IntArray, Queue, Thread

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Usual memory kinds of the source and of the destination, by kind of copy.
_COPIED_BETWEEN: Final = {
    "HtoD": ("pinned", "device"),
    "DtoH": ("device", "pinned"),
    "DtoD": ("device", "device"),
    "HtoH": ("pinned", "pinned"),
    "PtoP": ("device", "device"),
}

Span = tuple[int, int]


class Place(Queue, total=False):
    """Where GPU work runs, and the API call that started it."""

    tid: int | None
    correlation_id: int | None
    graph_node_id: int | None
    launch: Span | None
    launch_name: str


class TraceBuilder(HostTraceBuilder):
    """A report built event by event.

    Each event takes `start_ns` and either `duration_ns` or `end_ns`. `launch` is the (start, end)
    in ns of the API call that started it, made on `tid` with the same correlation id. Without
    `correlation_id` an event gets an unused one.
    """

    def kernel(
        self,
        name: str,
        *,
        start_ns: int,
        duration_ns: int | None = None,
        end_ns: int | None = None,
        launch: Span | None = None,
        correlation_id: int | None = None,
        graph_node_id: int | None = None,
        mangled_name: str | None = None,
        **more: Any,
    ) -> TraceBuilder:
        """Add a kernel by its demangled name, from which its base name is made; see `kernels`."""
        return self.kernels(
            [name],
            [0],
            start_ns=[start_ns],
            end_ns=[event_end_ns(start_ns, duration_ns, end_ns)],
            launch_ns=None if launch is None else ([launch[0]], [launch[1]]),
            correlation_ids=None if correlation_id is None else [correlation_id],
            graph_node_ids=graph_node_id or 0,
            mangled_names=[mangled_name],
            **more,
        )

    def memcpy(
        self,
        kind: str,
        *,
        start_ns: int,
        duration_ns: int | None = None,
        end_ns: int | None = None,
        size_bytes: int,
        src_memory: str | None = None,
        dst_memory: str | None = None,
        **place: Unpack[Place],
    ) -> TraceBuilder:
        """Add a copy; `kind`, as HtoD, also gives the usual memory kinds."""
        src, dst = _COPIED_BETWEEN[kind]
        columns: dict[str, Cells] = {
            "start": start_ns,
            "end": event_end_ns(start_ns, duration_ns, end_ns),
            "bytes": size_bytes,
            "copyKind": COPY_KINDS.index(kind),
            "srcKind": MEMORY_KINDS.index(src_memory or src),
            "dstKind": MEMORY_KINDS.index(dst_memory or dst),
            "copyCount": 1,
        }
        place.setdefault("launch_name", "cudaMemcpyAsync_v3020")
        return self._memory_operation("CUPTI_ACTIVITY_KIND_MEMCPY", columns, **place)

    def memset(
        self,
        *,
        start_ns: int,
        duration_ns: int | None = None,
        end_ns: int | None = None,
        size_bytes: int,
        value: int = 0,
        **place: Unpack[Place],
    ) -> TraceBuilder:
        columns: dict[str, Cells] = {
            "start": start_ns,
            "end": event_end_ns(start_ns, duration_ns, end_ns),
            "bytes": size_bytes,
            "value": value,
            "memKind": MEMORY_KINDS.index("device"),
        }
        place.setdefault("launch_name", "cudaMemsetAsync_v3020")
        return self._memory_operation("CUPTI_ACTIVITY_KIND_MEMSET", columns, **place)

    def _memory_operation(
        self,
        table: str,
        columns: dict[str, Cells],
        *,
        launch_name: str,
        launch: Span | None = None,
        correlation_id: int | None = None,
        graph_node_id: int | None = None,
        pid: int | None = None,
        tid: int | None = None,
        device_id: int = 0,
        context_id: int = 1,
        stream_id: int | IntArray = 7,
    ) -> TraceBuilder:
        identity = self._correlation_id(correlation_id, pid)
        columns |= {"correlationId": identity, "graphNodeId": graph_node_id}
        self._add(table, 1, columns | self._place(pid, device_id, context_id, stream_id))
        if launch is not None:
            start_ns, end_ns = launch
            thread: Thread = {"pid": pid, "tid": tid}
            self.api(
                launch_name, start_ns=start_ns, end_ns=end_ns, correlation_id=identity, **thread
            )
        return self

    def graph_launch(
        self,
        nodes: Sequence[tuple[str, int, int]],
        *,
        launch: Span,
        mode: Literal["node", "graph"] = "node",
        graph_exec_id: int = 1,
        launch_name: str = "cudaGraphLaunch_v10000",
        tid: int | None = None,
        **queue: Unpack[Queue],
    ) -> TraceBuilder:
        """Add the launch of a graph and what the capture sees of its run.

        Args:
            nodes: (kernel name, start, end) of each node, ns.
            launch: (start, end) of the API call, ns.
            mode: `node` gives a kernel per node, all with the launch's correlation id. `graph`
                gives one row for the whole graph, and none where the schema has no such table.
            graph_exec_id: Of the graph; its nodes are numbered from 1 below it.
        """
        pid = queue.get("pid")
        identity = self.reserve_correlation_ids(1, pid=pid)
        starts, ends = [node[1] for node in nodes], [node[2] for node in nodes]
        if mode == "node":
            self.kernels(
                [node[0] for node in nodes],
                range(len(nodes)),
                start_ns=starts,
                end_ns=ends,
                correlation_ids=[identity] * len(nodes),
                graph_node_ids=[(graph_exec_id << 32) + n + 1 for n in range(len(nodes))],
                **queue,
            )
        elif self.has_table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
            columns: dict[str, Cells] = {"start": min(starts), "end": max(ends)}
            columns |= {"graphId": graph_exec_id, "graphExecId": graph_exec_id}
            columns |= {"correlationId": identity, **self._place(**queue)}
            self._add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 1, columns)
        start_ns, end_ns = launch
        return self.api(
            launch_name, start_ns=start_ns, end_ns=end_ns, correlation_id=identity, pid=pid, tid=tid
        )
