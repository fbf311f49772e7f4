"""What a report cannot show of the GPU's work: graphs traced without a row, copies without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.api_classes import classify_api
from nsys_llm.rank_trace import RankTrace

__all__ = ["Unseen", "find_unseen"]

_COPIES: Final = ("memcpy", "memset", "sync_memop")


@dataclass(frozen=True)
class Unseen:
    """Calls of one rank that start GPU work, before the end of its window.

    Attributes:
        opaque_launches_n: Graph launches of which no operation is recorded: their work is not seen.
        copy_calls_n: Calls that copy or fill.
        copies_seen_n: Those of them of which an operation is recorded. A copy of no bytes, or
            within the host, has none.
    """

    opaque_launches_n: int
    copy_calls_n: int
    copies_seen_n: int


def find_unseen(trace: RankTrace) -> Unseen:
    """Count the calls whose GPU work the report does not hold."""
    calls = trace.tables.get("api_calls")
    if calls is None or not len(calls):
        return Unseen(0, 0, 0)
    classes = {key: classify_api(text) for key, text in trace.strings.items()}
    graphs = np.isin(calls["name_id"], _ids(classes, ("graph_launch",)))
    copies = np.isin(calls["name_id"], _ids(classes, _COPIES))
    if not (graphs.any() or copies.any()):
        return Unseen(0, 0, 0)
    seen = np.zeros(len(calls), dtype=bool)
    for op in trace.unfiltered.values():
        seen[op["launch_row"][op["launch_row"] >= 0]] = True
    if trace.windows_ns is not None and len(trace.windows_ns):
        # What was launched before the window may still run in it.
        early = calls["start_ns"] < trace.windows_ns[-1, 1]
        graphs, copies = graphs & early, copies & early
    return Unseen(
        opaque_launches_n=int((graphs & ~seen).sum()),
        copy_calls_n=int(copies.sum()),
        copies_seen_n=int((copies & seen).sum()),
    )


def _ids(classes: dict[int, str], wanted: tuple[str, ...]) -> list[int]:
    return [key for key, name in classes.items() if name in wanted]
