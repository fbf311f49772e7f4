"""Why a GPU was idle: the names of the causes. What stands for each is in docs/idle_gaps.md.

There A is the call that launched the operation at the end of a gap, and T the thread that made A.

What the driver records as its own (loading and compiling code, waiting for room in the launch
queue) counts before the call it happens in, time in which a server has no request, or a program
starts up, before both, and the profiler's own time before everything: it is no idle time. So each
nanosecond of a gap has one cause, and the gap is named after the largest.

Where kernels start before their launch call begins, the clocks of host and GPU disagree by as much
(see `nsys_llm.trace.attribution`). A gap that is shorter than that is `unresolved`, unless its
cause needs no comparison of the two clocks or has a margin of as much: nodes of one graph launch,
and a call that returned so long before the gap.

This starts from the rule of the peer survey, which named a gap by the largest share of T's calls
and took `launch_latency` for all that was launched before the gap. It differs where A was still
running when the gap began (A's class, not latency: a `cudaMemcpy` that stages pageable memory),
where the work was queued (apart from latency that the host could have hidden), for calls nested in
others (the outermost counts), and in splitting every gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nsys_llm.taxonomy.api_classes import classify_api

#: Every cause and what it says; of equal shares of a gap, the one that stands first names it.
CAUSES: Final[Mapping[str, str]] = {
    "host_sync": "the launching thread waited for a device, stream or event",
    "sync_memop": "the launching thread was in a copy or fill that blocks it",
    "alloc": "the launching thread allocated, pinned or freed memory",
    "module_load": "code was loaded or compiled, also inside the first launch of a kernel",
    "back_pressure": "a launch waited for room in the launch queue",
    "launch_api": "the launching thread was in calls that launch work",
    "other_api": "the launching thread was in another CUDA call",
    "host_no_cuda": "the launching thread was in no CUDA call",
    "launch_latency": "the next operation was launched in the gap, and not yet running",
    "queued": "the next operation had been launched before the gap began",
    "no_api": "the call that launched the next operation is not recorded",
    "after_last": "nothing ran on the device any more",
    "unresolved": "the gap is shorter than the clock error between host and GPU",
    "no_work": "no request was in the server",
    "other_process": "another process ran on the GPU",
    "start_up": "the program started up: before its first step",
    "profiler_overhead": "the profiler did its own work",
    "not_recorded": "work may have run that left no row",
}
CAUSE_NAMES: Final = tuple(CAUSES)

_CODES: Final = {name: code for code, name in enumerate(CAUSE_NAMES)}

ALLOC: Final = _CODES["alloc"]
MODULE_LOAD: Final = _CODES["module_load"]
BACK_PRESSURE: Final = _CODES["back_pressure"]
HOST_NO_CUDA: Final = _CODES["host_no_cuda"]
LAUNCH_LATENCY: Final = _CODES["launch_latency"]
QUEUED: Final = _CODES["queued"]
NO_API: Final = _CODES["no_api"]
AFTER_LAST: Final = _CODES["after_last"]
UNRESOLVED: Final = _CODES["unresolved"]
NO_WORK: Final = _CODES["no_work"]
OTHER_PROCESS: Final = _CODES["other_process"]
START_UP: Final = _CODES["start_up"]
PROFILER_OVERHEAD: Final = _CODES["profiler_overhead"]
NOT_RECORDED: Final = _CODES["not_recorded"]

#: Idle time of which nobody knows whether it is any, or in which a program had nothing to do on the
#: GPU: no class of the wall split has it as idle, and nothing can be gained there.
AWAY: Final = (NO_WORK, OTHER_PROCESS, NOT_RECORDED)

#: The causes before this code are idle time; the profiler's work is none, and lost work is not
#: known to be.
IDLE_CAUSES_N: Final = PROFILER_OVERHEAD
#: A first launch that takes at least so long, and so many times the median launch of its process,
#: loads the kernel's code: lazy loading takes 0.1 ms and more, a launch 2 to 20 us.
SLOW_FIRST_LAUNCH_NS: Final = 100_000
SLOW_FIRST_LAUNCH_TIMES: Final = 10
#: What another thread does that the launching one may wait for.
BLOCKING: Final = tuple(
    _CODES[name] for name in ("host_sync", "sync_memop", "alloc", "module_load")
)

#: Idle time that a host which is faster, further ahead or launches less would take away.
HOST_CAUSES: Final = (
    "host_sync",
    "sync_memop",
    "back_pressure",
    "launch_api",
    "other_api",
    "host_no_cuda",
    "launch_latency",
)

#: Causes that say where the time went and not why, or do not know.
UNCERTAIN: Final = (HOST_NO_CUDA, NO_API, AFTER_LAST, UNRESOLVED)

#: Causes of the classes of API functions; of all others it is other_api.
_OF_CLASS: Final = {
    "launch": "launch_api",
    "graph_launch": "launch_api",
    "memcpy": "launch_api",
    "memset": "launch_api",
    "host_block": "host_sync",
    "sync_memop": "sync_memop",
    "alloc": "alloc",
    "free": "alloc",
    "module": "module_load",
}


def call_cause(api: str) -> int:
    """Return the cause that time in a call of an API function has, as a code."""
    return _CODES[_OF_CLASS.get(classify_api(api), "other_api")]
