"""What a CUDA API function does to the host and to the stream, detected from its name. Pure.

The runtime's and the driver's functions differ in their prefix (`cuda`, `cu`) only, so one rule
serves both; CUDA 13's lists of runtime and driver callbacks were gone through for these rules.
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
