"""When threads ran on a core, out of the switches that the operating system recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, union_intervals
from nsys_llm.profile.tables import Table


@dataclass(frozen=True)
class ThreadScheduling:
    """The switches of one rank; None where none are recorded."""

    switches: Table | None
    _spans: dict[int, IntArray | None] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Mapping[str, Table]) -> ThreadScheduling:
        """Return those of a rank's tables."""
        return cls(tables.get("thread_switches"))

    def on_core_ns(self, thread: int, start_ns: int, end_ns: int) -> int | None:
        """Return how much of a stretch a thread (globalTid) ran; None if it has no switches."""
        if thread not in self._spans:
            self._spans[thread] = self._of_thread(thread)
        spans = self._spans[thread]
        if spans is None:
            return None
        return int(clipped_lengths(np.array([start_ns]), np.array([end_ns]), spans)[0])

    def _of_thread(self, thread: int) -> IntArray | None:
        if self.switches is None or not len(self.switches):
            return None
        switches = self.switches.take(
            (self.switches["global_tid"] == thread) & (self.switches["start_ns"] != NULL_INT)
        )
        return spans_on_core(switches["start_ns"], switches["goes_on"]) if len(switches) else None


def spans_on_core(at_ns: IntArray, goes_on: IntArray) -> IntArray:
    """Return when a thread ran: shape (n, 2), sorted and disjoint.

    Before its first switch and after its last one it did what these say.

    Args:
        at_ns: Shape (switches,), at least one, in any order.
        goes_on: Shape (switches,), not 0 where it goes onto a core, 0 where it leaves.
    """
    # Leaving one core and going onto another may bear the same time: it is on one then.
    order = np.lexsort((goes_on, at_ns))
    at_ns, runs = at_ns[order], goes_on[order] != 0
    bounds = np.iinfo(np.int64)
    edges = np.concatenate(([bounds.min // 4], at_ns, [bounds.max // 4]))
    running = np.concatenate(([not runs[0]], runs))
    return union_intervals(edges[:-1][running], edges[1:][running])
