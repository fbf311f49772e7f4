"""The classes of the wall split, and the groups of which the largest bounds a run. Pure.

Of each nanosecond of a GPU's span exactly one class is told, the first of `WALL_CLASSES` that the
GPU was in. A row of the split says a class, and a detail where one is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES

COMPUTE: Final = "compute"
FUSED: Final = "fused"
COMMUNICATION: Final = "communication"
LOAD: Final = "load"
COPIES: Final = "copies"
PROFILER: Final = "profiler"
NOT_RECORDED: Final = "not_recorded"
NO_WORK: Final = "no_work"
OTHER_PROCESS: Final = "other_process"
BEFORE_STEPS: Final = "start_up"
IDLE: Final = "idle"
#: In the order in which they take a nanosecond. Fused are kernels that compute and communicate at
#: once, of which whichever began first has the time, as of those that compute. Load are copies that
#: bring a model to a GPU before its first kernel; not_recorded is when work may have run that left
#: no row; other_process is when the GPU ran nothing of this process and something of another;
#: no_work is when a server had no request; start_up is idle time before the first step of a
#: program that then loads, compiles or captures. These have a row only where there is such time.
WALL_CLASSES: Final = (
    *(COMPUTE, FUSED, COMMUNICATION, LOAD, COPIES, PROFILER),
    *(NOT_RECORDED, OTHER_PROCESS, NO_WORK, BEFORE_STEPS, IDLE),
)

#: What is no part of the repeated work, so that nothing can be gained there, and its words.
APART: Final[Mapping[str, str]] = {
    LOAD: "load",
    OTHER_PROCESS: "other process",
    NOT_RECORDED: "not recorded",
    NO_WORK: "no requests in the server",
    BEFORE_STEPS: "start-up",
}

#: Words of classes that are no words of their own.
CLASS_WORDS: Final[Mapping[str, str]] = {**APART, FUSED: "fused with communication"}

#: Of a step, whose computation, copies and idle time hold what a run's split tells apart.
STEP_CLASSES: Final = (COMPUTE, COMMUNICATION, COPIES, PROFILER, IDLE)

#: Detail of computation: a CUDA graph traced as a whole, of which nobody knows what runs in it.
WHOLE_GRAPH: Final = "whole_graph"
#: Details of communication: before the last rank had come, the same between stages of a pipeline,
#: which wait by schedule, and for a rank whose experts got more tokens; from then on; and what is
#: not matched with the other ranks for sure.
#: Of ranks that were not read nobody knows whether they came last: transfer is not told from that.
WAITING: Final = "waiting"
BUBBLE: Final = "pipeline bubble"
EXPERTS: Final = "experts"
TRANSFER: Final = "transfer"
NOT_MATCHED: Final = "not_matched"
UNREAD: Final = "transfer or ranks not read"
#: Groups of idle time; of all other causes it is the host.
HOST: Final = "host"
START_UP: Final = "start-up"
DEVICE_LATENCY: Final = "device latency"
UNKNOWN: Final = "not known"

_IDLE_GROUPS: Final[Mapping[str, str]] = {
    "module_load": START_UP,
    "queued": DEVICE_LATENCY,
    "no_api": UNKNOWN,
    "after_last": UNKNOWN,
    "unresolved": UNKNOWN,
    **{NO_WORK: UNKNOWN, OTHER_PROCESS: UNKNOWN},
    BEFORE_STEPS: START_UP,
}


def idle_group(cause: str) -> str:
    """Return the group of a cause of idle time."""
    return _IDLE_GROUPS.get(cause, HOST if cause in CAUSE_NAMES else UNKNOWN)


#: Categories of kernels that do little with each value they read: fusing them is one lever, and
#: they are one part of the line.
POINTWISE: Final = frozenset({"elementwise", "memory", "norm", "activation", "reduction"})

#: What a run is called whose largest group it is; docs/llm_overview.md defines the words.
BOUND_WORDS: Final[Mapping[str, str]] = {
    COMPUTE: "GPU-BOUND",
    TRANSFER: "TRANSFER-BOUND",
    WAITING: "STRAGGLER-BOUND",
    BUBBLE: "BUBBLE-BOUND",
    EXPERTS: "EXPERT-BOUND",
    COPIES: "COPY-BOUND",
    HOST: "HOST-BOUND",
    START_UP: "START-UP-BOUND",
    DEVICE_LATENCY: "LATENCY-BOUND",
    # Where the recipe does not divide a class.
    COMMUNICATION: "COMMUNICATION-BOUND",
    IDLE: "IDLE",
}

#: What a run is called that is mostly that, whatever bounds the rest.
MOSTLY_WORDS: Final[Mapping[str, str]] = {
    LOAD: "LOAD",
    START_UP: "START-UP",
    NOT_RECORDED: "NOT RECORDED",
}


def bound_group(wall_class: str, detail: str | None) -> str | None:
    """Return the group of a row of the split; None for what bounds no program."""
    if wall_class == PROFILER or wall_class in CLASS_WORDS:
        return None
    if wall_class == COMPUTE:
        return UNKNOWN if detail == WHOLE_GRAPH else COMPUTE
    if detail is None or detail == UNREAD:
        return wall_class
    if detail == NOT_MATCHED:
        return UNKNOWN
    return idle_group(detail) if wall_class == IDLE else detail
