"""What NVTX ranges cost, by looking at every range for every operation: slow, and easy to check."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nsys_llm.taxonomy.names import normalize_range

KINDS = ("KERNEL", "MEMCPY", "MEMSET")


@dataclass
class Range:
    """One range, and the operations launched in it."""

    start: int
    end: int
    tid: int
    kind: str
    domain: str
    text: str
    row: int
    ops: list[Op] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.kind, self.domain, normalize_range(self.text))


@dataclass
class Op:
    """One operation, with the ranges around its launch, outermost first."""

    start: int
    end: int
    op: str
    around: list[Range]
    outcome: str

    @property
    def ns(self) -> int:
        return self.end - self.start


def read(path: Path) -> dict[int, tuple[list[Range], list[Op]]]:
    """Return the ranges and operations of each process of an SQLite export, by globalPid."""
    with closing(sqlite3.connect(path)) as database:
        ranges, ops = _ranges(database), _operations(database)
    by_process = {}
    for pid in {pid for pid, *_ in ops}:
        of_process = [nvtx_range for nvtx_range in ranges if nvtx_range.tid & ~0xFFFFFF == pid]
        times = (
            np.array(
                [(nvtx_range.start, nvtx_range.end) for nvtx_range in of_process], dtype=np.int64
            )
            .reshape(-1, 2)
            .T
        )
        by_process[pid] = (
            of_process,
            [_attributed(op, of_process, *times) for op in ops if op[0] == pid],
        )
    return by_process


def _ranges(database: sqlite3.Connection) -> list[Range]:
    query = (
        "select n.start, n.end, n.globalTid, n.eventType, n.domainId, coalesce(n.text, s.value) "
        "from NVTX_EVENTS n left join StringIds s on s.id = n.textId "
    )
    domains = {
        (tid & ~0xFFFFFF, domain): text
        for _, _, tid, _, domain, text in database.execute(query + "where n.eventType = 75")
    }
    last = max(end for _, _, end, *_ in _rows_of_kinds(database))
    rows = database.execute(query + "where n.eventType in (59, 60) order by n.rowid")
    return [
        Range(
            start,
            last if end is None else end,
            tid,
            "push_pop" if kind == 59 else "start_end",
            domains.get((tid & ~0xFFFFFF, domain), ""),
            text,
            row,
        )
        for row, (start, end, tid, kind, domain, text) in enumerate(rows)
        if end is None or end > start
    ]


def _rows_of_kinds(database: sqlite3.Connection) -> list[tuple[str, int, int, int, int]]:
    """Return (kind, start, end, globalPid, correlationId) of all operations."""
    listed = "select name from sqlite_master where type = 'table'"
    there = {name for (name,) in database.execute(listed)}
    rows = []
    for kind in KINDS:
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        if table in there:
            query = f'select start, "end", globalPid, correlationId from {table}'
            rows += [(kind.lower(), *row) for row in database.execute(query)]
    return rows


def _operations(database: sqlite3.Connection) -> list[tuple[int, int, int, str, int, int]]:
    calls: dict[tuple[int, int], tuple[int, int]] = {}
    query = "select start, globalTid, correlationId from CUPTI_ACTIVITY_KIND_RUNTIME order by start"
    for start, tid, key in database.execute(query):
        calls.setdefault((tid & ~0xFFFFFF, key), (start, tid))
    operations = []
    for kind, start, end, pid, key in _rows_of_kinds(database):
        at, tid = calls.get((pid, key), (-1, -1))
        operations.append((pid, start, end, kind, at, tid))
    return operations


def _attributed(
    operation: tuple[int, int, int, str, int, int], ranges: Sequence[Range], starts: Any, ends: Any
) -> Op:
    _, start, end, kind, at, tid = operation
    if at < 0:
        return Op(start, end, kind, [], "no_api")
    open_then = sorted(
        (ranges[row] for row in np.flatnonzero((starts <= at) & (ends > at)).tolist()),
        key=lambda nvtx_range: (nvtx_range.start, -nvtx_range.end, nvtx_range.row),
    )
    pushed = [
        nvtx_range
        for nvtx_range in open_then
        if nvtx_range.kind == "push_pop" and nvtx_range.tid == tid
    ]
    around = pushed or [nvtx_range for nvtx_range in open_then if nvtx_range.kind == "start_end"]
    op = Op(start, end, kind, around, "ranged" if around else "no_range")
    for nvtx_range in around:
        nvtx_range.ops.append(op)
    return op


def by_name(ranges: Iterable[Range], ops: Iterable[Op]) -> dict[str, Counter[tuple[str, str, str]]]:
    """Return sums by (kind, domain, normalised name)."""
    sums: dict[str, Counter[tuple[str, str, str]]] = defaultdict(Counter)
    for op in ops:
        for key in {nvtx_range.key for nvtx_range in op.around}:
            sums["inclusive_ns"][key] += op.ns
            sums["ops_n"][key] += 1
            sums["kernels_n"][key] += op.op == "kernel"
        if op.around:
            sums["self_ns"][op.around[-1].key] += op.ns
            sums["self_ops_n"][op.around[-1].key] += 1
    for nvtx_range in ranges:
        sums["instances_n"][nvtx_range.key] += 1
        if nvtx_range.ops:
            span = max(op.end for op in nvtx_range.ops) - min(op.start for op in nvtx_range.ops)
            sums["span_ns"][nvtx_range.key] += span
    return sums


def by_path(ops: Iterable[Op]) -> Counter[tuple[str, ...]]:
    """Return GPU time by the labels of the ranges around, with that of ranges inside."""
    sums: Counter[tuple[str, ...]] = Counter()
    for op in ops:
        if op.around and op.around[-1].kind == "start_end":
            sums[(f"{_label(op.around[-1])} [start/end]",)] += op.ns
            continue
        labels = tuple(_label(nvtx_range) for nvtx_range in op.around)
        for depth in range(len(labels)):
            sums[labels[: depth + 1]] += op.ns
    return sums


def _label(nvtx_range: Range) -> str:
    return f"{nvtx_range.key[2]}@{nvtx_range.domain}" if nvtx_range.domain else nvtx_range.key[2]
