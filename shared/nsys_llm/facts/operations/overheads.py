"""What the profiler and the driver took of one rank's time: the table overheads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.facts.device.profiler_time import overheads
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    clipped_lengths,
    total_length_ns,
    union_intervals,
)
from nsys_llm.trace.rank_trace import RankTrace

#: Stands for all kinds of one owner; their times overlap.
_ALL: Final = None


@dataclass(frozen=True)
class OverheadRow:
    """One kind of overhead, or all of one owner's. See the table of the manifest."""

    owner: str
    kind: str | None
    events_n: int
    union_ns: int
    gpu_idle_ns: int
    first_start_ns: int


def map_overheads(trace: RankTrace) -> tuple[OverheadRow, ...]:
    """Return the overheads that reach into the rank's window, sorted by owner and kind."""
    busy, window = trace.gpu_busy, trace.windows_ns
    if window is None:
        window = np.array([[busy[0, 0], busy[-1, 1]]]) if len(busy) else busy
    events: dict[tuple[str, str | None], list[IntArray]] = {}
    for owner, kind, rows in overheads(trace):
        _, start_ns, end_ns = clip_to_windows(rows["start_ns"], rows["end_ns"], window)
        if start_ns.size:
            times = np.column_stack([start_ns, end_ns])
            events.setdefault((owner, kind), []).append(times)
            events.setdefault((owner, _ALL), []).append(times)
    keys = sorted(events, key=lambda key: (key[0], key[1] or ""))
    return tuple(_row(*key, np.concatenate(events[key]), trace.gpu_busy) for key in keys)


def _row(owner: str, kind: str | None, times: IntArray, busy: IntArray) -> OverheadRow:
    union = union_intervals(times[:, 0], times[:, 1])
    return OverheadRow(
        owner=owner,
        kind=kind,
        events_n=len(times),
        union_ns=total_length_ns(union),
        gpu_idle_ns=total_length_ns(union)
        - int(clipped_lengths(union[:, 0], union[:, 1], busy).sum()),
        first_start_ns=int(times[:, 0].min()),
    )
