"""Where the host is while the GPU idles before a step: the table `before_steps`."""

from __future__ import annotations

from nsys_llm.facts.serving.rank import ServedSteps
from nsys_llm.report.columns import of_rank
from nsys_llm.trace.identity import Rank

from .batches import Row


def before_rows(rank: Rank, served: ServedSteps) -> list[Row]:
    """Return the rows of `before_steps`, the most time first."""
    times, counted = served.times, served.times.counted
    window_ns = int((times.end_ns - times.before_ns - times.no_work_ns)[counted].sum())
    order = sorted(served.before_ns.items(), key=lambda item: (-item[1], item[0]))
    return [
        of_rank(rank)
        | {
            "range": name,
            "idle_ns": time_ns / int(counted.sum()),
            "total_ns": time_ns,
            "window_pct": 100.0 * time_ns / window_ns if window_ns else None,
        }
        for name, time_ns in order
    ]
