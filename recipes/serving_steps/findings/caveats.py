"""What to know before reading costs of steps."""

from __future__ import annotations

from nsys_llm.report.records import Tables
from nsys_llm.view.text import counted


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    servers = tables["servers"]
    read = servers[servers["reason"].isna()]
    if read.empty:
        return []
    reported = [
        "Time between tokens runs from the end of one step to that of the next: a lower bound of "
        "what a client sees. Nothing is said of the time to a first token or of queues."
    ]
    others_n = len(servers) - len(read)
    if others_n:
        reported.append(
            f"{counted(others_n, 'rank')} of {len(servers)} have no steps whose names are read; "
            "`servers` says why."
        )
    return reported
