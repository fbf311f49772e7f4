"""The finding on experts that get uneven numbers of tokens. Reads finished tables only."""

from __future__ import annotations

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Tables, records
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.wall_classes import COMMUNICATION
from nsys_llm.view.text import counted, format_ns

from .texts import RULES


def expert_findings(tables: Tables) -> list[Finding]:
    """Return the finding on ranks that wait where tokens are exchanged, as their experts differ.

    On the GPU that waits most: it has least to compute.
    """
    rows = [row for row in records(tables["communicators"]) if row["uneven_ns"]]
    if not rows:
        return []
    worst, late_ns = (
        max(rows, key=lambda row: row["uneven_ns"]),
        sum(row["uneven_ns"] for row in rows),
    )
    walls = Walls(tables)
    rank, device_id = max(walls.gpus, key=lambda gpu: walls.class_ns(*gpu, COMMUNICATION))
    uneven_n = sum(row["uneven_n"] for row in rows)
    return [
        RULES["uneven_experts"].finding(
            cause=Cause("experts"),
            change=Change("experts", time_ns=late_ns),
            details=f"{format_ns(late_ns)} from the mean to the last arrival in "
            f"{counted(uneven_n, 'exchange')} of tokens.",
            fields={"time": format_ns(late_ns)},
            evidence=cells("communicators", worst, ("sequence_id",), ("uneven_ns", "uneven_n")),
            numbers={"late_ns": late_ns, "exchanges_n": uneven_n},
            rank=rank,
            device_id=device_id,
            impact_ns=round(late_ns),
        )
    ]
