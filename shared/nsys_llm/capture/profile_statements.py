"""What one profile says of itself, and lacks of the GPU work that its processes launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from nsys_llm.capture.unrecorded import LostWork, unrecorded_of
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import bounds
from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.profile.tables import Table, Trace, pid_of, process_of_thread
from nsys_llm.taxonomy.cuda_codes import MIGRATION, copy_kind_name, migration_kinds
from nsys_llm.taxonomy.nsys_messages import known_message
from nsys_llm.trace.outcomes import Statement
from nsys_llm.trace.rank_trace import OP_TABLES, latest_end_ns, sound_rows
from nsys_llm.trace.selection import gpu_processes, whole_process

#: Warnings and errors.
_GRAVE = (2, 3)


def profile_statements(
    trace: Trace, facts: CaptureFacts, known: Mapping[int, LostWork] = MappingProxyType({})
) -> tuple[Statement, ...]:
    """Return the statements on a profile, of all its processes and before any filter.

    Args:
        known: What some processes lack, by globalPid, where that is known already.
    """
    missing = tuple(work_statements(trace, known))
    lacking = {said.process for said in missing if said.process and said.kind in LACKING}
    unknown = (Statement("unknown_table", 1, name=name) for _, name in facts.unknown_tables)
    return (
        *_broken_times(trace),
        *_migrations(trace),
        *unknown,
        *missing,
        *diagnostics(trace, lacking),
    )


def _broken_times(trace: Trace) -> Iterator[Statement]:
    """Count the operations that are left out for their times, by process."""
    latest_ns = latest_end_ns(trace)
    ops = [trace[name] for name in OP_TABLES if name in trace and len(trace[name])]
    broken_n: Counter[int] = Counter()
    for op in ops:
        broken = ~sound_rows(op, latest_ns)
        if broken.any():
            broken_n.update(op["global_pid"][broken].tolist())
    for process, count in sorted(broken_n.items()):
        rows_n = sum(int((op["global_pid"] == process).sum()) for op in ops)
        named = None if process == NULL_INT else process
        yield Statement("broken_times", count, rows_n, named)


def _migrations(trace: Trace) -> Iterator[Statement]:
    """Count the pages of unified memory that were moved, by process and cause."""
    copies = trace.tables.get("memcpys")
    if copies is None or not len(copies):
        return
    kinds = migration_kinds(copies["copy_kind"], copies["migration_cause"])
    names = {int(kind): copy_kind_name(int(kind)) for kind in distinct(kinds)}
    moved = np.isin(kinds, [kind for kind, name in names.items() if name.startswith(MIGRATION)])
    if not moved.any():
        return
    processes = copies["global_pid"]
    some = zip(processes[moved].tolist(), kinds[moved].tolist(), strict=True)
    for (process, kind), count in sorted(Counter(some).items()):
        of_n = int((processes == process).sum())
        named = None if process == NULL_INT else process
        yield Statement("page_migrations", count, of_n, named, name=names[kind])


def diagnostics(trace: Trace, lacking: Collection[int]) -> Iterator[Statement]:
    """Count the messages of a profile: those that are a reason, and those that are not known.

    Args:
        lacking: The processes of which work is missing, as globalPid.
    """
    table = trace.tables.get("diagnostics")
    if table is None or not len(table):
        return
    known: Counter[tuple[int | None, str]] = Counter()
    unknown_n = 0
    columns = (table[name].tolist() for name in ("text", "severity", "global_pid"))
    for text, severity, process in zip(*columns, strict=True):
        found = known_message(text or "")
        if found is None:
            unknown_n += severity in _GRAVE
        elif found[0].advice and lacking:
            # The profiler's own have a process of their own, with number 0.
            whole = process == NULL_INT or process < 0 or not pid_of(process)
            if whole or process in lacking:
                known[None if whole else process, found[1]] += 1
    for (process, says), count in sorted(known.items(), key=str):
        yield Statement("nsys_message", count, process=process, name=says)
    if unknown_n:
        yield Statement("unknown_messages", unknown_n)


#: Kinds that say of a process that work of it is missing, or that it has none.
LACKING = ("lost_work", "silent_work", "unawaited_work")


def work_statements(trace: Trace, known: Mapping[int, LostWork]) -> Iterator[Statement]:
    """Return what is missing of each process, and how many of them have no row at all."""
    working = gpu_processes(trace)
    silent_n = launching_n = 0
    calls = trace.tables.get("api_calls", Table({}))
    threads = distinct(calls["global_tid"]) if len(calls) else np.empty(0, dtype=np.int64)
    for process in sorted({*working, *process_of_thread(threads).tolist()}):
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


def _lost(work: LostWork, process: int) -> Iterator[Statement]:
    """State what is lost of a process that has rows, and what the end of the capture may have."""
    every = {"kernel": work.launches_n, "graph": work.launches_n, "copy": work.copy_calls_n}
    yield from _proven("lost_work", work, every, process)
    if work.late_n:
        yield Statement(*("cut_work", work.late_n, work.launches_n, process), start_ns=work.late_ns)


def _silent(work: LostWork, process: int) -> Iterator[Statement]:
    """State what a process without any row launched."""
    yield from _proven("silent_work", work, dict.fromkeys(work.lost_n, work.launches_n), process)
    if work.late_n and not work.lost_n:
        yield Statement(
            *("unawaited_work", work.late_n, work.launches_n, process), start_ns=work.late_ns
        )


def _proven(
    kind: str, work: LostWork, every: Mapping[str, int], process: int
) -> Iterator[Statement]:
    start_ns, end_ns = bounds(work.spans)
    for name, count in work.lost_n.items():
        said = (kind, count, every[name], process, None, start_ns, end_ns, name)
        yield Statement(*said)
