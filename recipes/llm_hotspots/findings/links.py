"""Findings on the link between host and device: it bounds the job, or carries less than it can.

Reads tables only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.gains import Walls
from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.taxonomy.large_copies import LARGE_BYTES
from nsys_llm.taxonomy.wall_classes import COMPUTE, COPIES

from .memops import HIDEABLE, Gpu, best_gpu, by_gpu, fields_of, moved, summed
from .texts import LINK_BOUND_PCT, LINK_RATE_SHARE, RULES

_LINK: Final = "link"


def link_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about the link between host and device.

    Args:
        tables: Finished tables by name: memops, wall.
    """
    rows, walls = records(tables["memops"]), Walls(tables)
    rows = [row for row in rows if row["kind"] in HIDEABLE]
    slow = (
        finding
        for (kind,), some in grouped(rows, "kind").items()
        for finding in _slow(kind, some, _most_ns(kind, rows, walls), walls)
    )
    return [*_bound(rows, walls), *slow]


def _bound(rows: Sequence[Record], walls: Walls) -> Iterator[Finding]:
    """Return the finding on copies that take most of the span, more than computation can hide."""
    gains = {}
    for gpu, some in by_gpu(rows).items():
        copies_ns = min(summed(some, "exposed_ns"), walls.class_ns(*gpu, COPIES))
        share_pct = 100.0 * copies_ns / max(walls.span_ns(*gpu), 1)
        if share_pct >= LINK_BOUND_PCT and copies_ns > walls.class_ns(*gpu, COMPUTE):
            gains[gpu] = walls.gain(*gpu, copies_ns, (COPIES,))
    if not gains:
        return
    gpu, some, gain = best_gpu(rows, gains)
    rank, device = gpu
    numbers = Numbers()
    by_kind = grouped(some, "kind").items()
    reported = "; ".join(
        f"{moved(copies, numbers, f'{kind}_')} take "
        f"{numbers.ns(f'{kind}_union_ns', summed(copies, 'union_ns'))}"
        for (kind,), copies in by_kind
    )
    computes_ns = walls.class_ns(rank, device, COMPUTE)
    fields = fields_of(_LINK, gpu, some, gain, numbers, gain.gain_ns)
    known = all(row["size_bytes"] is not None for row in some)
    size = f"{numbers.bytes('link_bytes', summed(some, 'size_bytes'))} in " if known else ""
    fields["fields"] |= {"moved": f"{size}{numbers.ns('copies_ns', gain.gain_ns)}"}
    yield RULES["link_bound"].finding(
        details=f"Copies fill {numbers.ns('copies_ns', gain.gain_ns)} of "
        f"{numbers.ns('span_ns', gain.span_ns)} on device {device} of rank {rank}: {reported}. "
        f"The GPU computes for {numbers.ns('compute_ns', computes_ns)}, and overlapping copies "
        "with that gains no more.",
        **fields,
    )


def _most_ns(kind: str, rows: Sequence[Record], walls: Walls) -> dict[Gpu, int]:
    """Return how much time faster copies of a kind can gain on each GPU: other kinds stay."""
    others = by_gpu([row for row in rows if row["kind"] != kind])
    return {
        gpu: walls.class_ns(*gpu, COPIES)
        - max((row["exposed_ns"] for row in others.get(gpu, ())), default=0)
        for gpu in walls.gpus
    }


def _slow(
    kind: str, rows: Sequence[Record], most_ns: Mapping[Gpu, int], walls: Walls
) -> Iterator[Finding]:
    """Return the finding on copies below the best rate that the run shows in their direction.

    Args:
        kind: Theirs.
        rows: All of that kind.
        most_ns: What faster ones can gain on each GPU.
        walls: Of all GPUs.
    """
    fastest = max((row["fastest_gb_s"] or 0.0 for row in rows), default=0.0)
    slow = [row for row in rows if _is_slow(row, fastest)]
    if not slow:
        return
    gains = {
        gpu: walls.gain(
            *gpu, min(sum(_lost_ns(row, fastest) for row in some), most_ns[gpu]), (COPIES,)
        )
        for gpu, some in by_gpu(slow).items()
    }
    gpu, some, gain = best_gpu(slow, gains)
    rank, device = gpu
    numbers, exposed_ns = Numbers(), summed(some, "exposed_ns")
    fields = fields_of(kind, gpu, some, gain, numbers)
    rate = summed(some, "size_bytes") / summed(some, "union_ns")
    best = numbers.value("fastest_gb_s", fastest, "GB/s")
    fields["fields"] |= {"rate": numbers.value("union_gb_s", rate, "GB/s"), "best": best}
    yield RULES["slow_copies"].finding(
        details=f"{moved(some, numbers)} take {numbers.ns('exposed_ns', exposed_ns)} of "
        f"{numbers.ns('span_ns', gain.span_ns)} on device {device} of rank {rank} without a kernel "
        f"beside them. The fastest {kind} copy of the run has {best}.",
        **fields,
    )


def _is_slow(row: Record, fastest: float) -> bool:
    """Tell whether large copies of memory that is not pageable have less than the link's rate."""
    if row["pageable"] is not False or not row["size_bytes"] or not fastest:
        return False
    large = row["median_bytes"] >= LARGE_BYTES
    return bool(large and _needed_ns(row, fastest) < LINK_RATE_SHARE * row["union_ns"])


def _needed_ns(row: Record, fastest: float) -> float:
    """Return how long the copies of a row take at a rate in GB/s, which is bytes a nanosecond."""
    return float(row["size_bytes"] / fastest)


def _lost_ns(row: Record, fastest: float) -> float:
    """Return what the copies of a row would save at that rate, where no kernel hides them."""
    saved = 1.0 - _needed_ns(row, fastest) / max(row["union_ns"], 1)
    return max(saved, 0.0) * float(row["exposed_ns"])
