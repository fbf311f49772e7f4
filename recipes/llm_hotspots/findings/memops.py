"""Findings on copies: beside which no kernel runs, of pageable memory, inside the device.

Reads tables only. A copy that the host waits for costs idle time, and idle_gaps has its cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from nsys_llm.report.findings import Evidence, Finding, cells
from nsys_llm.report.gains import Gain, Walls
from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Record, Tables, grouped, records, window_of
from nsys_llm.taxonomy.large_copies import LARGE_BYTES
from nsys_llm.taxonomy.wall_classes import COMPUTE, COPIES
from nsys_llm.view.text import listed

from .texts import PINNED_SHARE, RULES

#: Kinds between host and device or between devices, which kernels can hide.
HIDEABLE: Final = ("HtoD", "DtoH", "PtoP", "unified HtoD", "unified DtoH", "unified DtoD")

_INSIDE: Final = "DtoD"
_PAGEABLE: Final = "pageable"

_MEMORIES: Final = ("source_memory", "target_memory")

#: Rank and device id.
Gpu = tuple[int, int]


def copy_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about copies and fills.

    Args:
        tables: Finished tables by name: memops, wall.
    """
    memops, walls = records(tables["memops"]), Walls(tables)
    hideable = [row for row in memops if row["kind"] in HIDEABLE]
    return [
        *(_exposed(kind, rows, walls) for (kind,), rows in grouped(hideable, "kind").items()),
        *_pageable(hideable, walls),
        *_inside_device([row for row in memops if row["kind"] == _INSIDE], walls),
    ]


def _exposed(kind: str, rows: Sequence[Record], walls: Walls) -> Finding:
    """Return the finding on copies that computation could hide: at most what there is of it."""
    gains = {
        gpu: walls.gain(
            *gpu, min(summed(some, "exposed_ns"), walls.class_ns(*gpu, COMPUTE)), (COPIES,)
        )
        for gpu, some in by_gpu(rows).items()
    }
    (rank, device), some, gain = best_gpu(rows, gains)
    numbers, exposed_ns = Numbers(), summed(some, "exposed_ns")
    computes_ns = walls.class_ns(rank, device, COMPUTE)
    return RULES["exposed_copies"].finding(
        details=f"No kernel runs during {numbers.ns('exposed_ns', exposed_ns)} of "
        f"{moved(some, numbers)} on device {device} of rank {rank}, in "
        f"{numbers.ns('span_ns', gain.span_ns)}; the GPU computes for "
        f"{numbers.ns('compute_ns', computes_ns)}, and no more than that can hide them.",
        **fields_of(kind, (rank, device), some, gain, numbers),
    )


def _pageable(rows: Sequence[Record], walls: Walls) -> Iterator[Finding]:
    """Return the finding on large copies of pageable memory: pinned, they are twice as fast."""
    large = [
        row
        for row in rows
        if row["pageable"] and (row["size_bytes"] or 0) >= LARGE_BYTES * max(row["ops_n"], 1)
    ]
    if not large:
        return
    gains = {
        gpu: walls.gain(
            *gpu, (1.0 - PINNED_SHARE) * summed(some, "exposed_ns"), (COPIES,), is_bound=False
        )
        for gpu, some in by_gpu(large).items()
    }
    (rank, device), some, gain = best_gpu(large, gains)
    numbers, exposed_ns = Numbers(), summed(some, "exposed_ns")
    yield RULES["pageable_copies"].finding(
        details=f"{moved(some, numbers)} take {numbers.ns('exposed_ns', exposed_ns)} of "
        f"{numbers.ns('span_ns', gain.span_ns)} on device {device} of rank {rank} without a kernel "
        "beside them. The driver stages pageable memory through a pinned buffer; from pinned "
        "memory copies are typically twice as fast.",
        **fields_of(_PAGEABLE, (rank, device), some, gain, numbers),
    )


def _inside_device(rows: Sequence[Record], walls: Walls) -> Iterator[Finding]:
    """Return the finding on copies inside a device beside which no kernel runs."""
    if not rows:
        return
    gains = {
        gpu: walls.gain(*gpu, summed(some, "exposed_ns"), (COPIES,))
        for gpu, some in by_gpu(rows).items()
    }
    (rank, device), some, gain = best_gpu(rows, gains)
    numbers, exposed_ns = Numbers(), summed(some, "exposed_ns")
    yield RULES["device_copies"].finding(
        details=f"{moved(some, numbers)} take {numbers.ns('exposed_ns', exposed_ns)} of "
        f"{numbers.ns('span_ns', gain.span_ns)} on device {device} of rank {rank} without a kernel "
        "beside them.",
        **fields_of(_INSIDE, (rank, device), some, gain, numbers),
    )


def fields_of(
    name: str,
    gpu: Gpu,
    rows: Sequence[Record],
    gain: Gain,
    numbers: Numbers,
    copies_ns: int | None = None,
) -> dict[str, Any]:
    """Return what all findings on copies say alike; the numbers of title and details are complete.

    Args:
        name: Kind of the copies.
        gpu: The one that gains most.
        rows: Its copies.
        gain: What it gains.
        numbers: Of the details, to which the share is added.
        copies_ns: Their time without a kernel, where kinds overlap; else it is their sum.
    """
    rank, device = gpu
    exposed_ns = summed(rows, "exposed_ns") if copies_ns is None else copies_ns
    share = numbers.percent("share_pct", 100.0 * exposed_ns / max(gain.span_ns, 1))
    return {
        "gain": gain,
        "culprit": f"copies:{name}",
        "evidence": _cells(rows),
        "numbers": numbers.fields,
        "fields": {"kind": name, "share": share, "rank": rank},
        "rank": rank,
        "device_id": device,
        "name": name,
        "window_ns": _longest(rows),
        "impact_ns": exposed_ns,
    }


def by_gpu(rows: Sequence[Record]) -> dict[Gpu, list[Record]]:
    """Return rows by rank and device id."""
    groups = grouped(rows, "rank", "device_id").items()
    return {(rank, device): some for (rank, device), some in groups}


def best_gpu(rows: Sequence[Record], gains: Mapping[Gpu, Gain]) -> tuple[Gpu, list[Record], Gain]:
    """Return the GPU with the largest gain, its rows, and the gain."""
    gpu = max(gains, key=lambda gpu: gains[gpu].gain_pct)
    return gpu, by_gpu(rows)[gpu], gains[gpu]


def moved(rows: Sequence[Record], numbers: Numbers, prefix: str = "") -> str:
    """Return how many copies moved how much, between which memories, how fast.

    Args:
        rows: The copies.
        numbers: To which theirs are added.
        prefix: Of the names of those.
    """
    ops = numbers.count(f"{prefix}ops_n", summed(rows, "ops_n"))
    kinds = listed(list(dict.fromkeys(row["kind"] for row in rows)))
    memories = {
        " to ".join(row[name] or "memory not recorded" for name in _MEMORIES) for row in rows
    }
    reported = [listed(sorted(memories))]
    if all(row["size_bytes"] is not None for row in rows):
        reported.append(numbers.bytes(f"{prefix}size_bytes", summed(rows, "size_bytes")))
    largest = max(rows, key=lambda row: row["total_ns"])
    rate = largest["rate_gb_s"]
    at = "" if rate is None else f" at {numbers.value(f'{prefix}rate_gb_s', rate, 'GB/s')}"
    return f"{ops} {kinds} copies ({', '.join(reported)}{at})"


def _cells(rows: Sequence[Record]) -> tuple[Evidence, ...]:
    keys = ("rank", "device_id", "kind", *_MEMORIES)
    return tuple(cell for row in rows for cell in cells("memops", row, keys, ["exposed_ns"]))


def _longest(rows: Sequence[Record]) -> tuple[int, int] | None:
    """Return the longest stretch of the rows without a kernel; None where there is none."""
    windows = [window_of(row, "exposed_start_ns", "exposed_end_ns") for row in rows]
    return max(
        (window for window in windows if window),
        key=lambda window: window[1] - window[0],
        default=None,
    )


def summed(rows: Sequence[Record], column: str) -> int:
    """Return the sum of a column that has no nulls."""
    return sum(row[column] for row in rows)
