"""What a profile lacks of the GPU work that its processes launched, as statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from nsys_llm.capture.unrecorded import LostWork, unrecorded_of
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import bounds
from nsys_llm.profile.tables import Trace, process_of_thread
from nsys_llm.trace.selection import gpu_processes, whole_process
from nsys_llm.trace.statements import Statement

#: Kinds that say of a process that work of it is missing, or that it has none.
LACKING = ("lost_work", "silent_work", "unawaited_work")


def work_statements(trace: Trace, known: Mapping[int, LostWork]) -> Iterator[Statement]:
    """Return what is missing of each process, and how many of them have no row at all.

    Args:
        known: What of it is known already, by globalPid.
    """
    working = gpu_processes(trace)
    silent_n = launching_n = 0
    for process in sorted({*working, *_calling(trace)}):
        work = known.get(process)
        if work is None:
            alone = working in ([process], [])
            work = unrecorded_of(whole_process(trace, process, alone=alone))
        launching_n += work.launches_n > 0 or process in working
        if process in working:
            yield from _lost(work, process)
        elif work.launches_n:
            silent_n += len(work.lost) > 0
            yield from _silent(work, process)
    if silent_n:
        yield Statement("silent_processes", silent_n, launching_n)


def _calling(trace: Trace) -> list[int]:
    """Return the processes that made CUDA calls."""
    calls = trace.tables.get("api_calls")
    if calls is None or not len(calls):
        return []
    return np.unique(process_of_thread(distinct(calls["global_tid"]))).tolist()


def _lost(work: LostWork, process: int) -> Iterator[Statement]:
    """State what is lost of a process that has rows, and what the end of the capture may have."""
    start_ns, end_ns = bounds(work.spans)
    every = {"kernel": work.launches_n, "graph": work.launches_n, "copy": work.copy_calls_n}
    for name, count in work.lost_n.items():
        yield Statement(
            *("lost_work", count, every[name], process),
            start_ns=start_ns,
            end_ns=end_ns,
            name=name,
        )
    if work.late_n:
        yield Statement(*("cut_work", work.late_n, work.launches_n, process), start_ns=work.late_ns)


def _silent(work: LostWork, process: int) -> Iterator[Statement]:
    """State what a process without any row launched."""
    start_ns, end_ns = bounds(work.spans)
    for name, count in work.lost_n.items():
        yield Statement(
            *("silent_work", count, work.launches_n, process),
            start_ns=start_ns,
            end_ns=end_ns,
            name=name,
        )
    if work.late_n and not work.lost_n:
        yield Statement(
            *("unawaited_work", work.late_n, work.launches_n, process), start_ns=work.late_ns
        )
