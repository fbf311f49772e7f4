"""Findings on ranks that are late because of the profiler, and what others say of it."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, records
from nsys_llm.view.text import format_ns

from ..tables.collective_classes import PERSISTENT, TRANSIENT
from .texts import RULES, WAIT_PCT

#: Share of the waiting from which the profiler's part is said, in percent; ours.
WORTH_A_WORD_PCT: Final = 1.0


def program_ns(row: Record) -> int:
    """Return the waiting that a rank caused without what the profiler made it late by."""
    return int(row["caused_wait_ns"]) - int(row["profiler_ns"] or 0)


def of_the_profiler(row: Record) -> str:
    """Say which part of the waiting that a rank caused is the profiler's, if it is worth it."""
    if 100 * int(row["profiler_ns"] or 0) < WORTH_A_WORD_PCT * int(row["caused_wait_ns"]):
        return ""
    return (
        f" {format_ns(row['profiler_ns'])} of that waiting is the profiler's own work, which held "
        f"rank {row['rank']}; what is judged here, and the worst one, is without it."
    )


def profiler_findings(ranks: pd.DataFrame) -> list[Finding]:
    """Name each rank that is late because the profiler held it, and is no straggler otherwise."""
    found = []
    for row in records(ranks[~ranks["pattern"].isin([PERSISTENT, TRANSIENT])]):
        profiler_ns = int(row["profiler_ns"] or 0)
        others_ns = int(row["span_ns"]) * (int(row["ranks_n"]) - 1)
        if not profiler_ns or 100 * profiler_ns < WAIT_PCT["low"] * others_ns:
            continue
        found.append(
            RULES["profiler_wait"].finding(
                severity="note",
                details=f"{format_ns(profiler_ns)} of the {format_ns(row['caused_wait_ns'])} that "
                f"the other ranks of {row['communicator']} waited for it: the profiler did its own "
                "work (it writes its buffers), held a CUDA call of the rank, and the GPU was idle "
                "meanwhile.",
                fields={"rank": row["rank"], "waiting": format_ns(profiler_ns)},
                rank=int(row["rank"]),
                device_id=int(row["device_id"]),
                impact_ns=profiler_ns,
            )
        )
    return found
