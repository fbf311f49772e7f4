"""What to know before reading the numbers of comm_stats. Reads finished tables only."""

from __future__ import annotations

from nsys_llm.report.records import Tables
from nsys_llm.view.text import counted


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    groups = tables["groups"]
    unknown_n = int(groups["axis"].isna().sum())
    if not unknown_n:
        return []
    return [
        f"The axis of parallelism of {counted(unknown_n, 'group')} is not known from what they do. "
        "`--layout tp=8,pp=4` names the axes."
    ]
