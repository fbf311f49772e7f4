"""Findings on ranks that are late because of the profiler, and what others say of it."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Record, records
from nsys_llm.view.text import format_ns, quoted

from ..tables.collective_classes import PERSISTENT, TRANSIENT
from .texts import LEFT_OUT_NS, PROFILER_PCT, RULES

#: Share of the waiting from which the profiler's part is said, in percent; ours.
WORTH_A_WORD_PCT: Final = 1.0


def program_ns(row: Record) -> int:
    """Return the waiting that a rank caused without what the profiler made it late by."""
    return int(row["caused_wait_ns"]) - int(row["profiler_ns"] or 0)


def of_the_profiler(row: Record) -> str:
    """Say which part of the waiting that a rank caused is the profiler's, if it is worth it."""
    if 100 * int(row["profiler_ns"] or 0) < WORTH_A_WORD_PCT * max(int(row["caused_wait_ns"]), 1):
        return ""
    return (
        f" The profiler's own work held rank {row['rank']} too: {format_ns(row['profiler_ns'])} "
        "of the waiting of all other ranks is left out here."
    )


def profiler_findings(ranks: pd.DataFrame) -> list[Finding]:
    """Name each rank that is late because the profiler held it, and is no straggler otherwise."""
    return [
        _profiler_wait(row)
        for row in records(ranks[~ranks["pattern"].isin([PERSISTENT, TRANSIENT])])
        if _is_worth_it(row)
    ]


def apart_findings(clocks: pd.DataFrame) -> list[Finding]:
    """Say what is left out of waiting because not all profiles recorded yet."""
    left_out_ns = int(clocks["left_out_ns"].sum())
    if left_out_ns < LEFT_OUT_NS:
        return []
    last = records(clocks.sort_values("recorded_after_ns", ascending=False, kind="stable"))[0]
    return [
        RULES["captures_apart"].finding(
            details=f"In collectives that began before, the ranks spent {format_ns(left_out_ns)} "
            f"until then; what comes after counts.",
            fields={
                "rank": last["rank"],
                "apart": format_ns(last["recorded_after_ns"]),
                "waiting": format_ns(left_out_ns),
            },
            evidence=cells("rank_clocks", last, ("rank",), ("recorded_after_ns", "left_out_ns")),
            rank=int(last["rank"]),
            impact_ns=left_out_ns,
        )
    ]


def _is_worth_it(row: Record) -> bool:
    profiler_ns = int(row["profiler_ns"] or 0)
    others_ns = int(row["span_ns"]) * (int(row["ranks_n"]) - 1)
    return profiler_ns > 0 and 100 * profiler_ns >= PROFILER_PCT * others_ns


def _profiler_wait(row: Record) -> Finding:
    profiler_ns = int(row["profiler_ns"])
    return RULES["profiler_wait"].finding(
        details=f"The other ranks of {quoted(row['communicator'])} waited "
        f"{format_ns(row['caused_wait_ns'])} for this rank, {format_ns(profiler_ns)} of it because "
        "the profiler was writing its buffers: a CUDA call of the rank had to wait for that, with "
        "its GPU idle.",
        fields={"rank": row["rank"], "waiting": format_ns(profiler_ns)},
        evidence=cells(
            "stragglers",
            row,
            ("communicator", "rank", "device_id"),
            ("profiler_ns", "caused_wait_ns"),
        ),
        culprit="profiler",
        rank=int(row["rank"]),
        device_id=int(row["device_id"]),
        impact_ns=profiler_ns,
    )
