"""Durations over time: for the configurations that may be the worst, by equal parts of the window.

Which configurations are the worst is known only when the medians over all ranks are. So each rank
sends those that can be: the ones with the most time beyond their shortest launch, which is never
less than that beyond the rank's own median, and the ones with the most time, since a rank that is
slower throughout has no spread of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.distributions import Moments, ValueCounts
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import twice_medians
from nsys_llm.numeric.time_bins import bin_edges

from .compact_histogram import narrowed

#: Parts of a window; a chart of them stays readable.
MOST_PARTS: Final = 40
#: Rows of a rank that are sent for their spread, and as many for their time.
SENT: Final = 32


@dataclass(frozen=True)
class TimeParts:
    """Parts of the time in which a configuration is launched on a device; of shape (parts,).

    Whole numbers, each column in the narrowest unsigned integers that hold it.

    Attributes:
        row: Row of `RankTails`.
        part: Which part of the device's window, see `part_edges`.
        launches_n: Launches that start in it, at least one.
        twice_p50_ns: Twice their median.
    """

    row: npt.NDArray[Any]
    part: npt.NDArray[Any]
    launches_n: npt.NDArray[Any]
    min_ns: npt.NDArray[Any]
    twice_p50_ns: npt.NDArray[Any]
    max_ns: npt.NDArray[Any]

    def take(self, rows: npt.NDArray[Any]) -> dict[str, IntArray]:
        """Return some of them by column, in full width."""
        return {
            field.name: getattr(self, field.name)[rows].astype(np.int64) for field in fields(self)
        }


def part_edges(window_ns: tuple[int, int]) -> IntArray:
    """Return the edges of the parts of a device's window, shape (parts + 1,)."""
    return bin_edges(*window_ns, MOST_PARTS)


def time_parts(
    start_ns: IntArray,
    duration_ns: IntArray,
    row: IntArray,
    moments: Moments,
    windows_ns: Sequence[tuple[IntArray, tuple[int, int]]],
) -> TimeParts:
    """Count the launches of one rank by part of its window.

    Args:
        start_ns: Shape (launches,), ascending, those in the window only.
        duration_ns: Likewise.
        row: Likewise, the row of `RankTails`.
        moments: Of the durations of each row.
        windows_ns: For each device its rows, and where its window begins and ends.
    """
    chosen = _chosen_rows(moments)
    chosen_place = np.full(moments.n.size, -1, dtype=np.int64)
    chosen_place[chosen] = np.arange(chosen.size)
    part = np.zeros(row.size, dtype=np.int64)
    for rows, window_ns in windows_ns:
        edges = part_edges(window_ns)
        # Launches are in order of time, so each part is a run of them.
        bounds = np.concatenate(([0], np.searchsorted(start_ns, edges[1:-1]), [row.size]))
        of_window = np.repeat(np.arange(edges.size - 1), np.diff(bounds))
        part = of_window if len(windows_ns) == 1 else np.where(np.isin(row, rows), of_window, part)
    kept = np.flatnonzero(chosen_place[row] >= 0)
    code = chosen_place[row[kept]] * MOST_PARTS + part[kept]
    counts = ValueCounts.from_values(code, duration_ns[kept])
    groups_n = chosen.size * MOST_PARTS
    by_part = counts.moments(groups_n)
    used = np.flatnonzero(by_part.n > 0)
    return TimeParts(
        row=narrowed(chosen[used // MOST_PARTS]),
        part=narrowed(used % MOST_PARTS),
        launches_n=narrowed(by_part.n[used]),
        min_ns=narrowed(by_part.minimum[used]),
        twice_p50_ns=narrowed(twice_medians(counts.order_statistics(groups_n))[used]),
        max_ns=narrowed(by_part.maximum[used]),
    )


def _chosen_rows(moments: Moments) -> IntArray:
    """Return the rows that may be the worst, ascending; of equal ones the first."""
    spread_ns = moments.total - moments.n * moments.minimum
    launched = np.flatnonzero(moments.n > 0)
    most = [
        launched[np.argsort(-value[launched], kind="stable")[:SENT]]
        for value in (spread_ns, moments.total)
    ]
    return np.unique(np.concatenate(most))
