"""Events for a synthetic report from arrays; `trace_builder` adds the calls for single events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nsys_llm.testing.trace_schema import Cells
from nsys_llm.testing.trace_store import IntArray, Queue, SyntheticReport, Thread

if TYPE_CHECKING:
    from typing_extensions import Unpack


_Builder = TypeVar("_Builder", bound="BulkTraceBuilder")

_NVTX_TYPES: Final = {"push_pop": 59, "start_end": 60, "mark": 34}
_RUNTIME_API, _DRIVER_API = 0, 1


@cache
def base_name(demangled: str) -> str:
    """Return a kernel's name without return type, scopes, template arguments and parameters."""
    plain = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", demangled)
    # A `>` in brackets is a comparison: std::enable_if<(T2>(0)), void>::type scope::k<T1>(T1 *)
    templates, brackets, kept = 0, 0, ""
    for letter in plain:
        if templates == 0 and letter == "(":
            break
        brackets += (letter == "(") - (letter == ")")
        if brackets == 0:
            templates += (letter == "<") - (letter == ">")
            kept += letter if templates == 0 and letter != ">" else ""
    return kept.rsplit("::", 1)[-1].split(" ")[-1]


class BulkTraceBuilder(SyntheticReport):
    """A report filled by arrays. A value that may be an array may also stand for all rows."""

    def kernels(
        self: _Builder,
        names: Sequence[str],
        name_codes: ArrayLike,
        *,
        start_ns: ArrayLike,
        end_ns: ArrayLike,
        launch_ns: tuple[ArrayLike, ArrayLike] | None = None,
        launch_name: str = "cudaLaunchKernel_v7000",
        correlation_ids: ArrayLike | None = None,
        graph_node_ids: ArrayLike = 0,
        grid: ArrayLike = (1, 1, 1),
        block: ArrayLike = (32, 1, 1),
        dynamic_shared_bytes: ArrayLike = 0,
        registers: ArrayLike = 32,
        mangled_names: Sequence[str | None] | None = None,
        tid: int | None = None,
        **queue: Unpack[Queue],
    ) -> _Builder:
        """Add kernels, and their launches where `launch_ns` is given.

        Args:
            name_codes: Shape (n,), position in `names`.
            start_ns: Shape (n,).
            end_ns: Shape (n,).
            launch_ns: Start and end of the API call of each, shape (n,) each.
            correlation_ids: Shape (n,); None takes unused ones.
            graph_node_ids: Shape (n,) or one; 0 where the kernel is no node of a graph.
            grid: Shape (3,) or (n, 3), in blocks.
            block: Shape (3,) or (n, 3), in threads.
            dynamic_shared_bytes: Shape (n,) or one.
            registers: Per thread, shape (n,) or one.
            mangled_names: Raw names for `names`; None leaves NULL.
            queue: Process, device, context and stream; `stream_id` may be one per kernel.
        """
        codes = np.asarray(name_codes, dtype=np.int64)
        count, pid = len(codes), queue.get("pid")
        ids = self._correlation_ids(correlation_ids, count, pid)
        columns: dict[str, Cells] = {
            "start": np.asarray(start_ns),
            "end": np.asarray(end_ns),
            "correlationId": ids,
            "gridId": ids,
            "registersPerThread": _cells(registers),
            "dynamicSharedMemory": _cells(dynamic_shared_bytes),
            **self._kernel_names(names, codes, mangled_names),
            **self._graph_nodes(graph_node_ids, count),
        }
        columns |= _dimensions("grid", grid) | _dimensions("block", block)
        columns |= _KERNEL_CONSTANTS | self._place(**queue)
        self._add("CUPTI_ACTIVITY_KIND_KERNEL", count, columns)
        if launch_ns is not None:
            start, end = launch_ns
            thread: Thread = {"pid": pid, "tid": tid}
            name = [launch_name]
            self.apis(name, ids * 0, start_ns=start, end_ns=end, correlation_ids=ids, **thread)
        return self

    def _graph_nodes(self, node_ids: ArrayLike, count: int) -> dict[str, Cells]:
        if np.ndim(node_ids) == 0 and not node_ids:
            return {"graphNodeId": None, "graphId": None}
        nodes = np.broadcast_to(np.asarray(node_ids, dtype=np.int64), count).tolist()
        if any(nodes):
            self._graph_mode = "Node"
        return {
            "graphNodeId": [node or None for node in nodes],
            "graphId": [node >> 32 or None for node in nodes],
        }

    def _kernel_names(
        self,
        names: Sequence[str],
        codes: IntArray,
        mangled_names: Sequence[str | None] | None,
    ) -> dict[str, Cells]:
        mangled = [self._string_id(name) for name in mangled_names or [None] * len(names)]
        return {
            "demangledName": self._string_ids(names)[codes],
            "shortName": self._string_ids(list(map(base_name, names)))[codes],
            "mangledName": [mangled[code] for code in codes.tolist()],
        }

    def apis(
        self: _Builder,
        names: Sequence[str],
        name_codes: ArrayLike,
        *,
        start_ns: ArrayLike,
        end_ns: ArrayLike,
        correlation_ids: ArrayLike | None = None,
        callchain_id: int | None = None,
        return_value: int = 0,
        pid: int | None = None,
        tid: int | None = None,
    ) -> _Builder:
        """Add CUDA API calls; names that start with `cu` and a capital are driver calls.

        Args:
            names: With their version suffix, like `cudaMemcpyAsync_v3020`.
            name_codes: Shape (n,), position in `names`.
            start_ns: Shape (n,).
            end_ns: Shape (n,).
            correlation_ids: Shape (n,); None takes unused ones.
            callchain_id: Of a call stack (see `call_stack`), the same for all of them.
            return_value: CUDA error code; 0 is success.
        """
        codes = np.asarray(name_codes, dtype=np.int64)
        classes = [_DRIVER_API if re.match("cu[A-Z]", name) else _RUNTIME_API for name in names]
        return self._add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            len(codes),
            {
                "start": np.asarray(start_ns),
                "end": np.asarray(end_ns),
                "eventClass": np.asarray(classes)[codes],
                "globalTid": self._thread(pid, tid),
                "correlationId": self._correlation_ids(correlation_ids, len(codes), pid),
                "nameId": self._string_ids(names)[codes],
                "returnValue": return_value,
                "callchainId": callchain_id,
            },
        )

    def nvtx_ranges(
        self: _Builder,
        texts: Sequence[str],
        *,
        start_ns: Sequence[int] | IntArray,
        end_ns: Sequence[int | None] | IntArray,
        kind: str = "push_pop",
        domain: str = "",
        registered: bool = False,
        pid: int | None = None,
        tid: int | None = None,
        end_tid: int | None = None,
    ) -> _Builder:
        """Add NVTX ranges.

        Args:
            texts: One per range.
            start_ns: One per range.
            end_ns: One per range; None for one that the capture does not see ending.
            kind: `push_pop`, `start_end` or `mark`.
            registered: Whether the texts are registered strings (`textId` in place of `text`).
            end_tid: Thread that ends a start/end range, where it is another one.
        """
        count = len(texts)
        first_ns = int(start_ns[0]) if count else 0
        range_ids: Cells = None
        if kind == "start_end":
            process = self._process(pid)
            range_ids = process.next_range_id + np.arange(count)
            process.next_range_id += count
        columns: dict[str, Cells] = {
            "start": start_ns,
            "end": end_ns,
            "eventType": _NVTX_TYPES[kind],
            "rangeId": range_ids,
            "text": None if registered else texts,
            "textId": self._string_ids(texts) if registered else None,
            "globalTid": self._thread(pid, tid),
            "endGlobalTid": None if end_tid is None else self._thread(pid, end_tid),
            "domainId": self._nvtx_domain(domain, first_ns, pid, tid),
        }
        return self._add("NVTX_EVENTS", count, columns)


#: Columns of a kernel that no recipe reads, as in a plain launch.
_KERNEL_CONSTANTS: Final[dict[str, Cells]] = {
    "launchType": 1,
    "cacheConfig": 1,
    "sharedMemoryExecuted": 32768,
    "sharedMemoryLimitConfig": 0,
    "tensorSizeMinusOneElements": "[]",
}


def _cells(values: ArrayLike) -> Cells:
    """Return an array, or the one value that holds for all rows."""
    return values if isinstance(values, int) else np.asarray(values)


def _dimensions(name: str, sizes: ArrayLike) -> dict[str, Cells]:
    if isinstance(sizes, tuple):
        return {f"{name}{axis}": size for axis, size in zip("XYZ", sizes, strict=True)}
    axes = np.asarray(sizes, dtype=np.int64).T
    return {
        f"{name}{axis}": values if np.ndim(values) else int(values)
        for axis, values in zip("XYZ", axes, strict=True)
    }
