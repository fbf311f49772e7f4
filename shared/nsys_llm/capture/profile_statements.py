"""What one profile says of itself, from the rows that are read anyway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from nsys_llm.capture.diagnostics import diagnostics
from nsys_llm.capture.unrecorded import LostWork
from nsys_llm.capture.work_statements import LACKING, work_statements
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct
from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.profile.tables import Trace
from nsys_llm.taxonomy.cuda_codes import MIGRATION, copy_kind_name, migration_kinds
from nsys_llm.trace.rank_trace import OP_TABLES
from nsys_llm.trace.sound_rows import latest_end_ns, sound_rows
from nsys_llm.trace.statements import Statement


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
