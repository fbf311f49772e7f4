"""What the host of one rank did: its part of llm_hotspots, and the tables of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.core.concurrently import concurrently
from nsys_llm.numeric.distributions import HistogramByName, ValueCounts
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.api_classes import LAUNCH_CLASSES, classify_api
from nsys_llm.trace.rank_trace import RankTrace

from .apis import RankApis, map_apis
from .callstacks import CallStack, map_callstacks
from .launch_stages import LaunchStages, map_stages
from .launches import DeviceLaunches, launched_devices, map_launches
from .os_waits import OsWaits, map_os_waits


@dataclass(frozen=True)
class RankHost:
    """What the host of one rank did.

    Attributes:
        held_first_ns: For how long the profiler held CUDA calls before the rank's first operation.
    """

    apis: RankApis
    launches: tuple[DeviceLaunches, ...]
    stages: LaunchStages
    os_waits: OsWaits
    callstacks: tuple[CallStack, ...]
    held_first_ns: int


def map_host(
    view: RankView,
    kernel_name: IntArray,
    durations: ValueCounts,
    devices: IntArray,
) -> tuple[RankHost, HistogramByName]:
    """Reduce the host's part of one rank.

    Args:
        view: The rank.
        kernel_name: Shape (kernels,), codes of the kernels' shown names.
        durations: How often a kernel took how long, by position of its device in `devices`.
        devices: Ids of the devices that have kernels, sorted.

    Returns:
        Its rows, and how often a call of each API function took how long.
    """
    trace, held = view.trace, view.held
    calls, broken = trace.host_calls("api_calls", {"device_id": launched_devices(trace)})
    (apis, api_durations), stages, launches = concurrently(
        len(calls),
        lambda: map_apis(trace, calls, broken, held),
        lambda: map_stages(trace, kernel_name),
        lambda: map_launches(trace, calls, held, durations, devices),
    )
    host = RankHost(
        apis=apis,
        launches=launches,
        stages=stages,
        os_waits=map_os_waits(trace, _launching_threads(trace), held),
        callstacks=map_callstacks(trace, calls, view.options),
        held_first_ns=_held_first_ns(trace, held.spans),
    )
    return host, api_durations


def _held_first_ns(trace: RankTrace, held: IntArray) -> int:
    """Return what of some spans lies before the rank's first operation, inside the windows."""
    windows = trace.windows_ns
    if not len(trace.gpu_busy) or (windows is not None and not len(windows)):
        return 0
    first_ns = int(trace.gpu_busy[0, 0])
    begins_ns = np.iinfo(np.int64).min if windows is None else int(windows[0, 0])
    return int((held.clip(begins_ns, first_ns) @ (-1, 1)).sum())


def _launching_threads(trace: RankTrace) -> IntArray:
    """Return the threads with launch calls; none where nobody asks, for want of OS calls."""
    calls = trace.tables["api_calls"]
    if not len(trace.tables["os_calls"]):
        calls = calls.take(np.zeros(len(calls), dtype=bool))
    ids = [key for key, text in trace.strings.items() if classify_api(text) in LAUNCH_CLASSES]
    return distinct(calls["global_tid"][np.isin(calls["name_id"], ids)])
