"""The graphs of all ranks as one: their collectives join them. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsys_llm.critical_path.path.classes import TRANSFER
from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.critical_path.replay.skeleton import NEVER
from nsys_llm.critical_path.replay.solve import Levels, levels
from nsys_llm.numeric.intervals import IntArray

from .meetings import Meetings, RankRows


@dataclass(frozen=True)
class JobGraph:
    """Nodes of all ranks, one after the other, and of each collective; times of ranks' own clocks.

    Attributes:
        kept: For each rank, shape (its edges,): not the lengths of members that are matched.
        base_ns: Shape (nodes,), see `Skeleton`; collectives last, on the common clock.
        source: Shape (edges,): those of ranks, then from members to collectives, then back.
        first_node: Shape (ranks + 1,), where the nodes of each rank begin.
        clock_ns: Shape (nodes,), what takes each rank's clock to the common one.
        back_ns: Shape (arrivals,), of each edge to a collective what takes the rank's clock to the
            common one; the same edges in the same order lead back from it.
        transfer_ns: Shape (arrivals,), from the last arrival to the member's end.
        rank_of: Shape (arrivals,), position of the rank.
        begun: Nodes of the begins of threads' first calls.
    """

    rows: RankRows
    kept: tuple[Bools, ...]
    base_ns: IntArray
    source: IntArray
    target: IntArray
    first_node: IntArray
    clock_ns: IntArray
    back_ns: IntArray
    transfer_ns: IntArray
    rank_of: IntArray
    begun: IntArray
    order: Levels

    def bases_ns(self, host: Sequence[float]) -> IntArray:
        """Return the times of nodes that nothing precedes, shape (nodes, columns).

        Args:
            host: Of each column, how many times as long the host takes: until each thread's first
                call, too, from when the first of all threads has its own.
        """
        bases = np.repeat(self.base_ns[:, None], len(host), axis=1)
        if self.begun.size:
            common_ns = self.base_ns[self.begun] + self.clock_ns[self.begun]
            later_ns = common_ns - common_ns.min()
            for column, factor in enumerate(host):
                bases[self.begun, column] += np.rint((factor - 1.0) * later_ns).astype(np.int64)
        return bases

    def weights(self, name: str, transfer: float) -> IntArray:
        """Return the weights of all edges under a change; of a rank that lacks it, unchanged."""
        parts = []
        for (_, budget), kept in zip(self.rows, self.kept, strict=True):
            column = budget.replay.ns[kept, budget.replay.column(name)]
            # What is not there is the least that fits into what travels.
            absent = column == np.iinfo(column.dtype).min
            parts.append(np.where(absent, NEVER, column.astype(np.int64)))
        transfer_ns = np.rint(self.transfer_ns * transfer).astype(np.int64)
        return np.concatenate([*parts, self.back_ns, transfer_ns - self.back_ns])

    def codes(self, name: str) -> Any:
        """Return what most of each edge is under a change, see `RankReplay`."""
        parts = []
        for (_, budget), kept in zip(self.rows, self.kept, strict=True):
            parts.append(budget.replay.code[kept, budget.replay.column(name)])
        n = self.back_ns.size
        return np.concatenate([*parts, np.full(2 * n, TRANSFER, dtype=np.uint8)])


def job_graph(rows: RankRows, meetings: Meetings) -> JobGraph:
    """Join the graphs of ranks at their collectives."""
    first_node = np.cumsum([0, *(budget.replay.base_ns.size for _, budget in rows)])
    sources, targets, kept, arrivals = [], [], [], []
    for place, (_, budget) in enumerate(rows):
        graph, forest, at = budget.replay, budget.forest, first_node[place]
        met = meetings.of_member[place]
        members = np.flatnonzero(met >= 0)
        end = graph.member_end[members]
        back = meetings.starts_ns[place][members] - forest.members.start_ns[members]
        transfer = forest.members.end_ns[members] + back - meetings.last_ns[met[members]]
        rank = np.full(members.size, place)
        start = graph.member_start[members]
        arrivals.append(np.stack((start + at, end + at, met[members], back, transfer, rank)))
        is_met = np.zeros(graph.base_ns.size, dtype=bool)
        is_met[end] = True
        kept.append(~is_met[graph.target])
        sources.append(graph.source[kept[-1]] + at)
        targets.append(graph.target[kept[-1]] + at)
    start, end, met, back, transfer, rank = np.concatenate(arrivals, axis=1)
    nodes_n, met_n = int(first_node[-1]), meetings.last_ns.size
    source = np.concatenate([*sources, start, nodes_n + met])
    target = np.concatenate([*targets, nodes_n + met, end])
    base = [budget.replay.base_ns for _, budget in rows]
    zero = np.zeros(1, dtype=np.int64)
    clock = [meetings.common_ns(rank, zero)[0] for rank, _ in rows] + [0]
    return JobGraph(
        rows=rows,
        kept=tuple(kept),
        base_ns=np.concatenate([*base, np.full(met_n, NEVER)]),
        source=source,
        target=target,
        first_node=first_node,
        clock_ns=np.repeat(clock, [*np.diff(first_node), met_n]),
        back_ns=back,
        transfer_ns=transfer,
        rank_of=rank,
        begun=np.concatenate(
            [
                budget.replay.begun + at
                for (_, budget), at in zip(rows, first_node[:-1], strict=True)
            ]
        ),
        order=levels(nodes_n + met_n, source, target),
    )
