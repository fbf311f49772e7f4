"""Waits and CUDA events for a synthetic report: what the host or a stream waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from trace_measured import MeasuredTraceBuilder

from nsys_llm.testing.trace_schema import Cells
from nsys_llm.testing.trace_store import IntArray

if TYPE_CHECKING:
    from typing_extensions import Unpack

from nsys_llm.testing.trace_store import Queue

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

_Builder = TypeVar("_Builder", bound="WaitTraceBuilder")


class WaitTraceBuilder(MeasuredTraceBuilder):
    """A report with rows of waits and of CUDA events; the calls themselves are added apart."""

    def waits(
        self: _Builder,
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
    ) -> _Builder:
        """Add rows of CUPTI_ACTIVITY_KIND_SYNCHRONIZATION.

        Args:
            kind: Of all of them.
            start_ns: Shape (n,); the rows lie inside their calls.
            end_ns: Shape (n,).
            correlation_ids: Shape (n,), of the calls.
            stream_ids: Shape (n,) or one: the stream that waits, or is waited for.
            event_ids: Shape (n,) or one: events, which are reused.
            event_sync_ids: Shape (n,) or one: records of events, which are unique. Exports before
                2026.1 have none.
            pid: Process.
            device_id: In the process.
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
        self: _Builder,
        *,
        event_ids: ArrayLike,
        event_sync_ids: ArrayLike,
        correlation_ids: ArrayLike,
        **queue: Unpack[Queue],
    ) -> _Builder:
        """Add rows of CUPTI_ACTIVITY_KIND_CUDA_EVENT: events recorded in streams.

        Args:
            event_ids: Shape (n,): events, which are reused.
            event_sync_ids: Shape (n,): the records, unique; exports before 2026.1 have none.
            correlation_ids: Shape (n,), of the calls.
            queue: Process, device, context and stream; `stream_id` may be one per record.
        """
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
