"""Findings on copies: those that bind the job, exposed ones, of pageable memory, slow ones.

A copy that the host waits for costs idle time, and idle_gaps has its cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Evidence, Finding, cells, claim
from nsys_llm.report.prices.pricing import bind
from nsys_llm.report.records import Record, Tables, grouped, records, window_of
from nsys_llm.report.templates import filled
from nsys_llm.report.walls import Gpu, Walls, share_of, span_of
from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.taxonomy.cuda_codes import LARGE_BYTES, MIGRATION
from nsys_llm.taxonomy.wall_classes import COPIES
from nsys_llm.view.text import listed

from .texts import LINK_RATE_SHARE, MANY_N, MOVED, RULES, SMALL_BYTES

#: Kinds between host and device or between devices, which kernels can hide.
HIDEABLE: Final = ("HtoD", "DtoH", "PtoP")

#: Where less than this part of copies could run beside anything, moving fewer bytes is what helps.
_LITTLE: Final = 0.1
_INSIDE: Final = "DtoD"
_MEMORY_WORDS: Final = {True: "pageable", False: "pinned"}
_GPU: Final = ("rank", "device_id")
_MEMORIES: Final = ("source_memory", "target_memory")


def copy_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about copies and fills."""
    memops, walls = records(tables["memops"]), Walls(tables)
    hideable = [row for row in memops if row["kind"] in HIDEABLE]
    kinds = grouped(hideable, "kind").items()
    binding = _bound(hideable, tables, walls)
    migrated = grouped([row for row in memops if row["kind"].startswith(MIGRATION)], "kind")
    inside = [row for row in memops if row["kind"] == _INSIDE]
    of_kind = partial(_of_kind, tables, walls)
    return [
        *(binding or [of_kind("exposed_copies", kind, rows) for (kind,), rows in kinds]),
        *(of_kind("exposed_migrations", kind, rows) for (kind,), rows in migrated.items()),
        *_pageable(hideable, tables, walls),
        *(of_kind("device_copies", _INSIDE, inside) for _ in inside[:1]),
        *(finding for (kind,), rows in kinds for finding in _slow(kind, rows, tables, walls)),
    ]


def _bound(rows: Sequence[Record], tables: Tables, walls: Walls) -> list[Finding]:
    """Return the finding on copies that bind the job: they fill most of a GPU's time."""
    bound = [row for gpu, some in by_gpu(rows).items() if bind(walls, gpu) for row in some]
    if not bound:
        return []
    some, gpu = _worst(bound, walls)
    largest = max(some, key=lambda row: row["exposed_ns"])
    by_kind = {
        kind: _moved(tables, gpu, copies) for (kind,), copies in grouped(some, "kind").items()
    }
    about = _about(largest["kind"], gpu, some, tables)
    about["impact_ns"] = copies_ns = walls.class_ns(*gpu, COPIES)
    overlap = _overlap(tables, gpu)
    # What could run beside copies: computation, and copies the other way.
    beside_ns = min(overlap["exposed_htod_ns"], overlap["exposed_dtoh_ns"])
    beside_ns += overlap["compute_only_ns"] + overlap["compute_communication_ns"]
    is_alone = beside_ns < _LITTLE * copies_ns
    pageable = "pageable " * any(row["pageable"] for row in some)
    words = [
        filled(MOVED, {cell.field: cell.value for cell in cells} | fields)
        for cells, fields in by_kind.values()
    ]
    about["fields"] = {
        "pinned_first": "pinned memory, " if pageable else None,
        "which": f"{pageable}copies{' that do not overlap' * (bool(pageable) and not is_alone)}",
        "beside_ns": beside_ns,
        "pinned_gb_s": _faster_gb_s(largest),
        "by_kind": "; ".join(words),
    }
    sized = tuple(kind for kind, (_, fields) in by_kind.items() if "size_bytes" not in fields)
    about["evidence"] = (
        *share_of(tables, gpu, "exposed_ns", COPIES),
        claim(tables, "link_bytes", "memops", "size_bytes", kind=sized, **place_of(gpu)),
        *(
            replace(cell, name=f"{kind}_{cell.field}")
            for kind, (cells, _) in by_kind.items()
            for cell in cells
        ),
    )
    case = "alone" if is_alone else None
    return [RULES["link_bound"].finding(case=case, change=Change("copies"), **about)]


def _overlap(tables: Tables, gpu: Gpu) -> Record:
    overlap = tables["overlap"]
    return records(overlap[(overlap["rank"] == gpu[0]) & (overlap["device_id"] == gpu[1])])[0]


def _of_kind(tables: Tables, walls: Walls, rule: str, kind: str, rows: list[Record]) -> Finding:
    some, gpu = _worst(rows, walls)
    about = _about(kind, gpu, some, tables)
    about["fields"] |= _words(kind, some)
    return RULES[rule].finding(change=Change("copies", kind), **about)


def _words(kind: str, rows: Sequence[Record]) -> dict[str, str]:
    """Return how a title names copies of a kind, and what to do about such."""
    if kind.startswith(MIGRATION):
        kinds = kind.replace(MIGRATION, f"{MIGRATION}s")
        return {"kinds": kinds, "advice": advice_on(copy=kind) or ""}
    pageable = {row["pageable"] for row in rows}
    memory = _MEMORY_WORDS.get(pageable.pop()) if len(pageable) == 1 else None
    of = f" of {memory} memory" if memory and kind in ("HtoD", "DtoH") else ""
    ops_n = max(summed(rows, "ops_n"), 1)
    is_small = all(row["size_bytes"] is not None for row in rows) and (
        summed(rows, "size_bytes") < SMALL_BYTES * ops_n
    )
    advice = advice_on(
        copy=kind, memory=memory, size="small" if is_small and ops_n >= MANY_N else "large"
    )
    noun = "PtoP (peer)" if kind == "PtoP" else kind
    return {"copies": f"{noun} copy{of}|{noun} copies{of}", "advice": advice or ""}


def _pageable(rows: Sequence[Record], tables: Tables, walls: Walls) -> Iterator[Finding]:
    large = [
        row
        for row in rows
        if row["pageable"] and (row["size_bytes"] or 0) >= LARGE_BYTES * max(row["ops_n"], 1)
    ]
    if not large:
        return
    some, gpu = _worst(large, walls)
    kind = max(some, key=lambda row: row["exposed_ns"])["kind"]
    about = _about(kind, gpu, some, tables)
    about["fields"]["pinned_gb_s"] = _faster_gb_s(next(row for row in some if row["kind"] == kind))
    yield RULES["pageable_copies"].finding(change=Change("copies", kind), **about)


def _faster_gb_s(row: Record) -> float | None:
    """Return what pinned memory reaches, where copies of pageable memory are known to be slower."""
    is_faster = row["pageable"] and (row["pinned_gb_s"] or 0.0) > (row["rate_gb_s"] or 0.0)
    return float(row["pinned_gb_s"]) if is_faster else None


def _slow(kind: str, rows: Sequence[Record], tables: Tables, walls: Walls) -> Iterator[Finding]:
    fastest = max((row["fastest_gb_s"] or 0.0 for row in rows), default=0.0)
    slow = [row for row in rows if _is_slow(row, fastest)]
    if not slow:
        return
    some, gpu = _worst(slow, walls)
    about = _about(kind, gpu, some, tables)
    of = partial(claim, tables, **_where(gpu, some))
    union = of("union_ns", "memops", "union_ns")
    rate = of("union_gb_s", "memops", "size_bytes", "sum", union)
    seen = max(rows, key=lambda row: row["fastest_gb_s"] or 0.0)
    about["evidence"] += (
        rate,
        *cells("memops", seen, (*_GPU, "kind", *_MEMORIES), ["fastest_gb_s"]),
    )
    # Copies both ways share the memory of the host: what that takes is no fault of the link.
    shared_ns = _overlap(tables, gpu)["exposed_both_ways_ns"] / 2
    saved_ns = summed(some, "exposed_ns") * (1 - rate.value / fastest) - shared_ns
    if saved_ns > 0:
        yield RULES["slow_copies"].finding(change=Change("copies", kind, sure_ns=saved_ns), **about)


def _is_slow(row: Record, fastest: float) -> bool:
    if row["pageable"] is not False or not row["size_bytes"] or not fastest:
        return False
    needed_ns = row["size_bytes"] / fastest
    return bool(
        row["median_bytes"] >= LARGE_BYTES and needed_ns < LINK_RATE_SHARE * row["union_ns"]
    )


def _worst(rows: Sequence[Record], walls: Walls) -> tuple[list[Record], Gpu]:
    """Return the rows of the GPU that has most of such copies without a kernel, and which it is."""
    groups = by_gpu(rows)
    times = {gpu: summed(some, "exposed_ns") for gpu, some in groups.items()}
    gpu = largest_share(times, walls)
    return groups[gpu], gpu


def largest_share(times_ns: Mapping[Gpu, int], walls: Walls) -> Gpu:
    """Return the GPU with most of some time for its span; there is at least one."""
    return max(times_ns, key=lambda gpu: times_ns[gpu] / max(walls.span_ns(*gpu), 1))


def place_of(gpu: Gpu) -> dict[str, Any]:
    """Return what chooses the rows of a GPU, and what a finding on it is about."""
    return {"rank": gpu[0], "device_id": gpu[1]}


def _about(kind: str, gpu: Gpu, rows: Sequence[Record], tables: Tables) -> dict[str, Any]:
    """Return what all findings on copies say."""
    span = span_of(tables, gpu)
    of = partial(claim, tables, **_where(gpu, rows))
    exposed = of("exposed_ns", "memops", "exposed_ns")
    moved, fields = _moved(tables, gpu, rows)
    # The longest stretch without a kernel.
    windows = [window_of(row, "exposed_start_ns", "exposed_end_ns") for row in rows]
    return {
        "cause": Cause("copies", detail=kind),
        "evidence": (
            *(exposed, span, of("share_pct", "memops", "exposed_ns", "sum", span)),
            *moved,
        ),
        "fields": {"kind": kind, **fields},
        "name": kind,
        "window_ns": max(filter(None, windows), key=lambda it: it[1] - it[0], default=None),
        "impact_ns": exposed.value,
        **place_of(gpu),
    }


def _where(gpu: Gpu, rows: Sequence[Record]) -> dict[str, Any]:
    """Return what tells copies of a GPU from its others."""
    which = {name: tuple(dict.fromkeys(row[name] for row in rows)) for name in ("kind", *_MEMORIES)}
    return {**place_of(gpu), **which}


def by_gpu(rows: Sequence[Record]) -> dict[Gpu, list[Record]]:
    """Return rows by rank and device id."""
    return {(key[0], key[1]): some for key, some in grouped(rows, *_GPU).items()}


def _moved(
    tables: Tables, gpu: Gpu, rows: Sequence[Record]
) -> tuple[tuple[Evidence, ...], dict[str, Any]]:
    """Return the numbers and words of `MOVED`: how many copies moved how much, how fast."""
    memories = {
        " to ".join(row[name] or "memory not recorded" for name in _MEMORIES) for row in rows
    }
    of = partial(claim, tables, **_where(gpu, rows))
    longest = max(rows, key=lambda row: row["total_ns"])
    ops, size = of("ops_n", "memops", "ops_n"), of("size_bytes", "memops", "size_bytes")
    rate = cells("memops", longest, (*_GPU, "kind", *_MEMORIES), ["rate_gb_s"])
    fields: dict[str, Any] = {
        "kinds": listed(list(dict.fromkeys(row["kind"] for row in rows))),
        "memories": listed(sorted(memories)),
    }
    if any(row["size_bytes"] is None for row in rows):
        return (ops, *rate), {**fields, "size_bytes": None}
    return (ops, size, *rate), fields


def summed(rows: Sequence[Record], column: str) -> int:
    """Return the sum of a column that has no nulls."""
    return sum(row[column] for row in rows)
