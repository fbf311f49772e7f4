"""What one rank's threads did in exposed time, as facts keep it: integers and strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: States of a thread.
CUDA_CALL: Final = "cuda_call"
OS_CALL: Final = "os_call"
OFF_CORE: Final = "off_core"
RUNNING: Final = "running"
UNKNOWN: Final = "unknown"
#: What stands for a function where Python's interpreter lock is waited for.
INTERPRETER_LOCK: Final = "interpreter lock"
#: States that samples divide.
SAMPLED: Final = (CUDA_CALL, RUNNING)
#: Parts of a run: what repeats, what comes before, and all else.
STEP: Final = "step"
WARMUP: Final = "warm-up"
OUTSIDE: Final = "outside"
#: Fewer samples say nothing about shares.
LEAST_SAMPLES: Final = 30
#: Device, thread, cause, part, range and state of an `Exposure`.
Where = tuple[int, int, str, str, str | None, str]


@dataclass(frozen=True)
class Exposure:
    """Whose time it is, as the tables `host_states` and `host_modules` of the manifest have it."""

    device_id: int
    tid: int
    cause: str
    part: str
    range: str | None
    state: str


@dataclass(frozen=True)
class HostState(Exposure):
    """Time of one device exposed to one thread."""

    detail: str | None
    time_ns: int
    on_core_ns: int | None
    os_call: str | None
    os_call_ns: int


@dataclass(frozen=True)
class HostModule(Exposure):
    """Samples in one kind of exposed time."""

    module_class: str
    samples_n: int
    collecting_n: int


@dataclass(frozen=True)
class HostPart:
    """One rank.

    Attributes:
        states: By device and thread; their times add up to the exposed time.
        modules: Samples in CUDA calls and where a thread ran.
        period_ns: Usual time between two samples of a thread that runs; None without samples.
        steps_n: Steps that are no warm-up.
    """

    states: tuple[HostState, ...]
    modules: tuple[HostModule, ...]
    period_ns: int | None
    steps_n: int
