"""What time on a critical path is charged to, and by which edge the path goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES

#: Every class of time on a path, and what it says. Those of calls are causes of idle time, too.
CLASSES: Final[Mapping[str, str]] = {
    "compute": "a kernel that is not communication",
    "transfer": "a matched collective, from its last rank's arrival on",
    "wait_for_rank": "a matched collective, before its last rank arrived",
    "communication": "a communication kernel that is not matched with other ranks",
    "copy": "a copy or fill",
    "device_latency": "the device's way from one operation to the next",
    "launch_latency": "the way from the return of a launch to the start of its operation",
    "launch_api": "a call that launches work",
    "alloc": "a call that allocates, pins or frees memory",
    "module_load": "code was loaded or compiled",
    "back_pressure": "a launch waited for room in the launch queue",
    "other_api": "another CUDA call",
    "host_sync": "a call that waited, and not for an operation that ended in it",
    "sync_memop": "a blocking copy, and not its operation",
    "sync_latency": "from the end of what a call waited for to its return",
    "host_no_cuda": "a thread in no CUDA call",
    "profiler_overhead": "the profiler did its own work",
    "unknown": "nothing is recorded",
}
CLASS_NAMES: Final = tuple(CLASSES)

_CODES: Final = {name: code for code, name in enumerate(CLASS_NAMES)}

COMPUTE: Final = _CODES["compute"]
TRANSFER: Final = _CODES["transfer"]
WAIT_FOR_RANK: Final = _CODES["wait_for_rank"]
COMMUNICATION: Final = _CODES["communication"]
COPY: Final = _CODES["copy"]
DEVICE_LATENCY: Final = _CODES["device_latency"]
LAUNCH_LATENCY: Final = _CODES["launch_latency"]
MODULE_LOAD: Final = _CODES["module_load"]
BACK_PRESSURE: Final = _CODES["back_pressure"]
SYNC_LATENCY: Final = _CODES["sync_latency"]
HOST_NO_CUDA: Final = _CODES["host_no_cuda"]
PROFILER: Final = _CODES["profiler_overhead"]
UNKNOWN: Final = _CODES["unknown"]

#: The class of each cause that a call may have; `unknown` where a call has none of them.
CLASS_OF_CAUSE: Final = tuple(_CODES.get(name, UNKNOWN) for name in CAUSE_NAMES)

#: Why time is unknown.
NO_API: Final = "no_api"
OPAQUE_GRAPH: Final = "opaque_graph"
BEFORE_CAPTURE: Final = "before_capture"

#: Edges: what an activity waited for. The ones up to `LAST_CERTAIN` are certain.
EDGES: Final[Mapping[str, str]] = {
    "launch": "the call that launched it returned",
    "call": "it began inside the call that launched it",
    "stream": "the operation before it on its stream ended",
    "event": "an operation ended that its stream waited for, by the rows of an event",
    "thread": "its thread returned from the call before",
    "wait": "a call returned when what it waited for had ended",
    "collective": "the last rank arrived",
    "begin": "nothing before it is recorded",
    "launch_inferred": "as `launch`; what else its stream may have waited for is not recorded",
    "call_inferred": "as `call`; what else its stream may have waited for is not recorded",
    "stream_inferred": "as `stream`; what else its stream may have waited for is not recorded",
    "event_inferred": "as `event`; inferred, without the rows that would make it certain",
    "graph_inferred": "a node of the same graph launch, on another stream, ended; inferred",
    "room": "an operation of another stream ended, and left room on the device; inferred",
    "wait_inferred": "as `wait`; inferred, without a row that names what the call waited for",
    "hand_over": "another thread handed over; inferred",
    "unclear_arrival": "the last rank arrived; which one is within the doubt of the clocks",
}
EDGE_NAMES: Final = tuple(EDGES)

_EDGE: Final = {name: code for code, name in enumerate(EDGE_NAMES)}

BY_LAUNCH: Final = _EDGE["launch"]
BY_CALL: Final = _EDGE["call"]
BY_STREAM: Final = _EDGE["stream"]
BY_EVENT: Final = _EDGE["event"]
BY_THREAD: Final = _EDGE["thread"]
BY_WAIT: Final = _EDGE["wait"]
BY_COLLECTIVE: Final = _EDGE["collective"]
BY_NOTHING: Final = _EDGE["begin"]
LAUNCH_INFERRED: Final = _EDGE["launch_inferred"]
CALL_INFERRED: Final = _EDGE["call_inferred"]
STREAM_INFERRED: Final = _EDGE["stream_inferred"]
EVENT_INFERRED: Final = _EDGE["event_inferred"]
GRAPH_INFERRED: Final = _EDGE["graph_inferred"]
BY_ROOM: Final = _EDGE["room"]
WAIT_INFERRED: Final = _EDGE["wait_inferred"]
HAND_OVER: Final = _EDGE["hand_over"]
UNCLEAR_ARRIVAL: Final = _EDGE["unclear_arrival"]
#: Codes above this are inferred.
LAST_CERTAIN: Final = BY_NOTHING
