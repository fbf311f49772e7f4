"""The finding on experts that get uneven numbers of tokens, by how the slowest rank moves."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.analyses.collectives.experts import UNEVEN
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables, percent
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, EXPERTS, WAITING
from nsys_llm.view.text import counted, format_ns, format_percent

from .texts import RULES

_CASES: Final = {"one rank": "one_rank", "by layer": "by_layer"}


def uneven_experts(tables: Tables) -> pd.DataFrame:
    """Return the rows of experts that are uneven; none where they are even."""
    rows = tables["experts"]
    rows = rows[(rows["pattern"] != "even") | rows["pattern"].isna()]
    is_uneven = rows["max_ns"].sum() >= UNEVEN * rows["mean_ns"].sum()
    return rows if is_uneven and rows["late_ns"].sum() else rows[:0]


def late_experts(rows: pd.DataFrame, tables: Tables) -> tuple[int, float]:
    """Return what even experts gain, ns, and the share of all waiting that is for experts.

    Ranks wait beside each other, so that counts whose experts cost most, in all of their groups.
    How much later the last rank comes than the mean one is what the mean one waits.
    """
    ranks = rows["group"].map(tables["groups"].set_index("group")["ranks"])
    late_ns = int(rows.groupby(ranks)["late_ns"].sum().max())
    walls = Walls(tables)
    experts_ns, other_ns = (
        sum(walls.detail_ns(gpu, COMMUNICATION, detail) for gpu in walls.gpus)
        for detail in (EXPERTS, WAITING)
    )
    return late_ns, percent(experts_ns, experts_ns + other_ns)


def expert_findings(tables: Tables) -> list[Finding]:
    """Return the finding on uneven experts; on the GPU that waits most: it has least to compute."""
    rows = uneven_experts(tables)
    if rows.empty:
        return []
    late_ns, waiting_pct = late_experts(rows, tables)
    longer_pct = longer_experts(rows)
    walls = Walls(tables)
    rank, device_id = max(walls.gpus, key=lambda gpu: walls.class_ns(*gpu, COMMUNICATION))
    patterns = set(rows["pattern"].dropna())
    pattern = patterns.pop() if len(patterns) == 1 else None
    return [
        RULES["experts"].finding(
            cause=Cause("experts"),
            change=Change("experts", time_ns=late_ns),
            case=_CASES.get(str(pattern)),
            details=f"From the mean to the last arrival it is {format_ns(late_ns)}, "
            f"{format_percent(waiting_pct)} of what the mean GPU waits for others; between "
            f"{counted(len(rows), 'dispatch and combine', 'dispatches and combines')} the slowest "
            f"rank computes {longer_pct:.1f} % longer than the mean one.",
            fields={
                "share": format_percent(waiting_pct),
                "hot": int(rows["hot_rank"].mode().iloc[0]),
            },
            numbers={
                "late_ns": late_ns,
                "waiting_pct": waiting_pct,
                "instances_n": len(rows),
                "longer_pct": longer_pct,
            },
            rank=rank,
            device_id=device_id,
            impact_ns=late_ns,
        )
    ]


def longer_experts(rows: pd.DataFrame) -> float:
    """Return by how much the slowest rank computes longer than the mean one, in percent."""
    mean_ns = float(rows["mean_ns"].sum())
    return percent(float(rows["max_ns"].sum()) - mean_ns, mean_ns)
