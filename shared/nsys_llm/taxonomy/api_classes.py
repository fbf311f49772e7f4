"""What a CUDA API function does to the host and to the stream, and whose time an overhead is. Pure.

The runtime's and the driver's functions differ in their prefix (`cuda`, `cu`) only, so one rule
serves both; CUDA 13's lists of runtime and driver callbacks were gone through for these rules.

Nsight Systems records the profiler's own work in PROFILER_OVERHEAD, in all schemas. From 2026.1 on
CUPTI_ACTIVITY_KIND_OVERHEAD holds what CUPTI calls overhead besides: some of it is the profiler's,
some the application would have had anyway. Types: CUpti_ActivityOverheadKind of CUPTI.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from nsys_llm.taxonomy.names import strip_api_version

#: Every class, and what its functions do.
API_CLASSES: Final = {
    "launch": "starts one kernel",
    "graph_launch": "starts a CUDA graph",
    "memcpy": "enqueues a copy or prefetch; returns before it ends, unless host memory is pageable",
    "memset": "enqueues a fill",
    "sync_memop": "copies or fills without Async in its name: the host waits for it",
    "host_block": "waits for a device, stream or event",
    "poll": "asks whether a stream or event is done, and returns",
    "stream_order": "makes a stream wait, or puts a host function into it; returns at once",
    "event": "makes, records or reads an event",
    "alloc": "allocates, pins or maps memory",
    "free": "frees, unpins or unmaps memory",
    "graph": "captures, builds, instantiates or updates a CUDA graph",
    "module": "loads code or looks up a function",
    "other": "anything else",
}

#: Classes whose calls start GPU work of kernels.
LAUNCH_CLASSES: Final = ("launch", "graph_launch")

#: Classes whose calls may return only when the GPU is done with something.
WAITING_CLASSES: Final = ("host_block", "sync_memop", "alloc", "free")

#: The first that matches a name without prefix and suffixes decides.
_RULES: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("graph_launch", r"GraphLaunch"),
        ("graph", r"Graph(?!ics)|.*Captur(e|ing)"),
        ("stream_order", r"LaunchHostFunc|StreamAddCallback|Stream(Wait|Write|BatchMemOp)"),
        ("stream_order", r"(Green)?CtxWaitEvent"),
        ("launch", r"Launch"),
        ("host_block", r"(Device|Stream|Event|Thread|Ctx)Synchronize"),
        ("poll", r"(Stream|Event)Query"),
        ("memcpy", r"Memcpy.*Async|MemPrefetch|MemDiscard"),
        ("memset", r"Memset.*Async"),
        ("sync_memop", r"Memcpy|Memset"),
        ("event", r"(Green)?(Ctx)?(Record)?Event|Ipc(Get|Open)EventHandle"),
        ("free", r"Free|MemFree|HostUnregister|MemHostUnregister|Mem(Release|Unmap|AddressFree)"),
        ("free", r"(Mipmapped)?ArrayDestroy|MemPool(Destroy|TrimTo)|IpcCloseMemHandle"),
        ("alloc", r"Malloc|HostAlloc|HostRegister|Mem(Host)?Alloc|MemHostRegister"),
        ("alloc", r"Mem(Create|Map|AddressReserve|SetAccess|Import)|MemPool(Create|Import)"),
        ("alloc", r"(Mipmapped)?Array(3D)?Create|IpcOpenMemHandle"),
        ("module", r"(Init)?Module|Library|Link|Kernel|Func|Get(Func|Kernel)|Register(Fat|Func)"),
    )
)
#: `__cuda` is what code compiled by CUDA 13 calls, `cu64` the driver's old 64-bit variants.
_PREFIX: Final = re.compile(r"_*cuda|cu(64)?")


@cache
def classify_api(name: str) -> str:
    """Return the class of an API function, one of `API_CLASSES`."""
    prefix = _PREFIX.match(name)
    if prefix is None:
        return "other"
    plain = strip_api_version(name)[prefix.end() :]
    return next((api_class for api_class, pattern in _RULES if pattern.match(plain)), "other")


PROFILER: Final = "profiler"
APPLICATION: Final = "application"
#: Owner and kind by type, for the types that say what they are.
_BY_TYPE: Final = {
    2: (APPLICATION, "JIT compilation"),
    3: (PROFILER, "buffer flush"),
    4: (PROFILER, "instrumentation"),
    5: (PROFILER, "resource management"),
    6: (APPLICATION, "module loading"),
    7: (APPLICATION, "lazy function loading"),
    8: (APPLICATION, "command buffer full"),
}

#: What happens once, when code runs for the first time.
COLD_START_KINDS: Final = ("JIT compilation", "module loading", "lazy function loading")

#: How exports before overhead types (schema 3.7) begin the names of CUPTI's kinds.
_CUPTI: Final = ("CUPTI: ", "CUPTI ")


def overhead_kind(table: str, overhead_type: int, name: str | None) -> tuple[str, str]:
    """Return whose overhead an event is, and its kind.

    Args:
        overhead_type: As recorded; anything else where the export has no types.
        name: Name of the event; None where there is none.
    """
    if overhead_type in _BY_TYPE:
        return _BY_TYPE[overhead_type]
    owner = PROFILER if table == "profiler_overheads" else APPLICATION
    if not name:
        return owner, "unknown"
    for prefix in _CUPTI:
        name = name.removeprefix(prefix)
    # Names of things, such as NVTX, stay as they are.
    return owner, name[0].lower() + name[1:] if name[1:2].islower() else name
