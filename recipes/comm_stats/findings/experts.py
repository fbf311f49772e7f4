"""The finding on experts that get uneven numbers of tokens, by how the slowest rank moves."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables, percent
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.wall_classes import COMMUNICATION
from nsys_llm.view.text import counted, format_ns

from .texts import RULES, UNEVEN_EXPERTS

#: Verdicts of ranks whose kernels all take longer: their experts do with them.
_SLOW: Final = ("slow_gpu", "slow_host")
_CASES: Final = {"one rank": "one_rank", "by layer": "by_layer"}


def uneven_experts(tables: Tables) -> pd.DataFrame:
    """Return the rows of experts that are uneven, and not those of a slow GPU; none where even."""
    rows = tables["experts"]
    rows = rows[(rows["pattern"] != "even") | rows["pattern"].isna()]
    verdicts = tables["rank_verdicts"]
    slow = set(verdicts.loc[verdicts["verdict"].isin(_SLOW), "rank"])
    one = rows["pattern"] == "one rank"
    rows = rows[~(one & rows["hot_rank"].isin(slow))]
    is_uneven = rows["max_ns"].sum() >= UNEVEN_EXPERTS * rows["mean_ns"].sum()
    return rows if is_uneven and rows["late_ns"].sum() else rows[:0]


def expert_findings(tables: Tables) -> list[Finding]:
    """Return the finding on uneven experts; on the GPU that waits most: it has least to compute."""
    rows = uneven_experts(tables)
    if rows.empty:
        return []
    late_ns, mean_ns = int(rows["late_ns"].sum()), float(rows["mean_ns"].sum())
    longest_ns = float(rows["max_ns"].sum())
    walls = Walls(tables)
    rank, device_id = max(walls.gpus, key=lambda gpu: walls.class_ns(*gpu, COMMUNICATION))
    patterns = set(rows["pattern"].dropna())
    pattern = patterns.pop() if len(patterns) == 1 else None
    hot = int(rows["hot_rank"].mode().iloc[0])
    return [
        RULES["experts"].finding(
            cause=Cause("experts"),
            change=Change("experts", time_ns=late_ns),
            case=_CASES.get(str(pattern)),
            details=f"{format_ns(late_ns)} from the mean to the last arrival in "
            f"{counted(len(rows), 'dispatch and combine', 'dispatches and combines')}; between "
            f"them the slowest rank computes {percent(longest_ns - mean_ns, mean_ns):.1f} % longer "
            "than the mean one.",
            fields={"time": format_ns(late_ns), "hot": hot},
            numbers={
                "late_ns": late_ns,
                "instances_n": len(rows),
                "longer_pct": percent(longest_ns - mean_ns, mean_ns),
            },
            rank=rank,
            device_id=device_id,
            impact_ns=late_ns,
        )
    ]
