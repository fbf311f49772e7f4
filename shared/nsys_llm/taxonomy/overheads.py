"""What tracing and the driver cost: whose time an overhead event is, and of which kind. Pure.

Nsight Systems records the profiler's own work in PROFILER_OVERHEAD, in all schemas. From 2026.1 on
CUPTI_ACTIVITY_KIND_OVERHEAD holds what CUPTI calls overhead besides: some of it is the profiler's,
some the application would have had anyway. Types: CUpti_ActivityOverheadKind of CUPTI.
"""

from __future__ import annotations

from typing import Final

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
