"""Processes that share a GPU: when others than one of them had it. Pure numpy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Final

import numpy as np

from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import IntArray, intersect_intervals, merged_unions, union_intervals
from nsys_llm.profile.tables import Table, Trace, pid_of
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.rank_trace import OP_TABLES, latest_end_ns, sound_rows
from nsys_llm.trace.selection import used_devices

#: Option: by the path of a profile those that use one of its GPUs at the same time, each with what
#: takes its clock to that profile's, in ns.
BESIDE: Final = "beside"


@dataclass(frozen=True)
class GpuUsers:
    """The processes of one profile.

    Attributes:
        gpu_of: Process id and CUDA device id -> GPU; of what is not there nobody knows.
        ahead_ns: What takes its clock to that on which spans are asked for.
    """

    trace: Trace
    gpu_of: Mapping[tuple[int, int], str]
    ahead_ns: int = 0

    @cached_property
    def talking(self) -> frozenset[int]:
        """The processes that run communication kernels: NCCL takes no two ranks on one GPU."""
        kernels = self.trace.tables.get("kernels", Table({}))
        if "demangled_name_id" not in kernels:
            return frozenset()
        names = distinct(kernels["demangled_name_id"]).tolist()
        ids = [key for key in names if is_communication(self.trace.strings.get(key, ""))]
        rows = np.isin(kernels["demangled_name_id"], ids)
        return frozenset(distinct(kernels["global_pid"][rows]).tolist())

    def busy(self, gpus: set[str]) -> Iterator[tuple[int, int, str, IntArray]]:
        """Yield process and device, GPU, and when some GPUs ran anything for them."""
        latest_ns = latest_end_ns(self.trace)
        tables = [self.trace[name] for name in OP_TABLES if name in self.trace]
        sound = [op.take(sound_rows(op, latest_ns)) for op in tables if len(op)]
        for process in sorted({pid for op in sound for pid in distinct(op["global_pid"]).tolist()}):
            own = [op.take(op["global_pid"] == process) for op in sound]
            devices = np.unique(np.concatenate([distinct(op["device_id"]) for op in own]))
            for device in devices.tolist():
                gpu = self.gpu_of.get((pid_of(process) or 0, device))
                if gpu is None or gpu not in gpus:
                    continue
                here = [op.take(op["device_id"] == device) for op in own]
                times = (np.concatenate([op[at] for op in here]) for at in ("start_ns", "end_ns"))
                yield process, device, gpu, union_intervals(*times) + self.ahead_ns


def others_work(users: Sequence[GpuUsers]) -> dict[int, IntArray]:
    """Return when other processes ran on all GPUs of each process of the first profile.

    Processes that share none are left out. Spans are sorted and disjoint, shape (n, 2).
    """
    pids: dict[str, set[tuple[int, int]]] = {}
    for at, profile in enumerate(users):
        for (pid, _), gpu in profile.gpu_of.items():
            pids.setdefault(gpu, set()).add((at, pid))
    shared = {gpu for gpu, some in pids.items() if len(some) > 1}
    if not shared:
        return {}
    busy = [(at, *use) for at, profile in enumerate(users) for use in profile.busy(shared)]
    beside: dict[int, list[IntArray]] = {}
    for at, process, _, gpu, _ in busy:
        others = [
            spans
            for of_profile, other, _, of, spans in busy
            if of == gpu
            and (of_profile, other) != (at, process)
            and not (process in users[at].talking and other in users[of_profile].talking)
        ]
        if not at:
            beside.setdefault(process, []).append(merged_unions(others))
    own_n = {process: len(used_devices(users[0].trace, process)) for process in beside}
    return {
        process: reduce(intersect_intervals, spans)
        for process, spans in beside.items()
        if len(spans) == own_n[process] and all(map(len, spans))
    }
