"""What a capture measures beside the events, for a synthetic report: device memory, GPU metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from trace_host import HostTraceBuilder

from nsys_llm.taxonomy.cuda_codes import MEMORY_KINDS
from nsys_llm.testing.trace_schema import Cells
from nsys_llm.testing.trace_store import Thread

if TYPE_CHECKING:
    from typing_extensions import Unpack


_ALLOCATION, _FREE = 0, 1
#: Above the bits of a metric's type id that hold the GPU's number; any number would do.
_METRIC_TYPE: Final = 0x100

_Builder = TypeVar("_Builder", bound="MeasuredTraceBuilder")


class MeasuredTraceBuilder(HostTraceBuilder):
    """A report with memory events and sampled metrics."""

    def allocate(
        self: _Builder,
        size_bytes: int,
        *,
        address: int,
        at_ns: int,
        memory: str = "device",
        device_id: int = 0,
        pool_bytes: int | None = None,
        call: tuple[int, int] | None = None,
        api: str = "cudaMalloc_v3020",
        operation: int = _ALLOCATION,
        **thread: Unpack[Thread],
    ) -> _Builder:
        """Add an allocation, and the API call that made it where `call` is its (start, end), ns."""
        row = (operation, size_bytes, address, at_ns, memory, device_id, pool_bytes)
        return self._memory_event(row, call, api, **thread)

    def free(self: _Builder, size_bytes: int, *, address: int, at_ns: int, **more: Any) -> _Builder:
        more = {"api": "cudaFree_v3020", "operation": _FREE, **more}
        return self.allocate(size_bytes, address=address, at_ns=at_ns, **more)

    def gpu_metrics(
        self: _Builder,
        metrics: Mapping[str, Sequence[int]],
        *,
        times_ns: Sequence[int],
        gpu_id: int = 0,
    ) -> _Builder:
        """Add samples of metrics of one GPU, all taken together.

        Args:
            metrics: Values by metric, one for each of `times_ns`.
            times_ns: When the samples were taken.
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

    def _memory_event(
        self: _Builder,
        row: tuple[int, int, int, int, str, int, int | None],
        call: tuple[int, int] | None,
        api: str,
        **thread: Unpack[Thread],
    ) -> _Builder:
        operation, size_bytes, address, at_ns, memory, device_id, pool_bytes = row
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
