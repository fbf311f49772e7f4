"""Replays of the job: the graphs of ranks joined at their collectives, run with something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.critical_path.job.meetings import Meetings, TimedSteps
from nsys_llm.critical_path.path import classes
from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.critical_path.rank.rank import RankRows
from nsys_llm.critical_path.replay.condensed import DOUBT, USUAL
from nsys_llm.critical_path.replay.skeleton import NEVER
from nsys_llm.critical_path.replay.solve import Clamps, Levels, beyond_others, levels, longest
from nsys_llm.manifest.what_if import DEVICE, HOST, MACHINE, RANK, TRANSFER, ReplayChange
from nsys_llm.numeric.grouping import position_in_group
from nsys_llm.numeric.intervals import IntArray

#: Lateness that is so many times the usual distance from its median is no jitter; of a normal
#: distribution 1 in 400.
_FAR: Final = 4.5


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
        return np.concatenate([*parts, np.full(2 * n, classes.TRANSFER, dtype=np.uint8)])


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


@dataclass(frozen=True)
class JobReplays:
    """Steps of the job under several changes, on the common clock.

    Attributes:
        names: Of the columns: "" for the run as it was, `USUAL`, then changes.
        edge_ns: Shape (steps + 1, columns), as `TimedSteps.edge_ns`.
        ns: Shape (edges, columns).
        at_ns: Shape (nodes, columns).
        last: Shape (steps, columns), the node with which each step ends.
    """

    names: tuple[str, ...]
    edge_ns: IntArray
    graph: JobGraph
    ns: IntArray
    at_ns: IntArray
    last: IntArray


def replays(
    rows: RankRows, meetings: Meetings, job: TimedSteps, changes: Sequence[ReplayChange]
) -> JobReplays | str:
    """Replay the job; return why that is not possible where it is not."""
    reasons = {budget.replay.reason for _, budget in rows if budget.replay.reason}
    if reasons:
        return sorted(reasons)[0]
    graph = job_graph(rows, meetings)
    if not graph.order.is_whole:
        return "circle"
    names = ["", USUAL, *(change.text for change in changes)]
    columns, clamps, host = [], dict[int, tuple[Bools, IntArray]](), [1.0] * len(names)
    late: dict[int, list[int]] = {}
    for place, name in enumerate(names):
        transfer = 1.0
        if place > 1:
            change = changes[place - 2]
            if change.what in (DEVICE, TRANSFER):
                transfer = change.factor
            if change.what == HOST:
                host[place] = change.factor
            if change.what in (RANK, MACHINE):
                late[place] = late_ranks(rows, change)
                clamps[place] = _late_edges(graph, meetings, late[place])
        columns.append(graph.weights(name, transfer))
    ns = np.stack(columns, axis=1)
    reported = Clamps(tuple(clamps), *zip(*clamps.values(), strict=True)) if clamps else None
    at_ns = longest(graph.order, graph.bases_ns(host), graph.source, ns, reported)
    edge_ns, last = _edges(rows, meetings, job, graph, at_ns, late)
    return JobReplays(tuple(names), edge_ns, graph, ns, at_ns, last)


def late_ranks(rows: RankRows, change: ReplayChange) -> list[int]:
    """Return the positions of the ranks that a change makes like the others."""
    return [
        place
        for place, (rank, _) in enumerate(rows)
        if change.name == (rank.file if change.what == RANK else rank.host)
    ]


def _late_edges(
    graph: JobGraph, meetings: Meetings, places: Sequence[int]
) -> tuple[Bools, IntArray]:
    """Return which edges lead from some ranks to collectives, and their jitter, shape (edges,)."""
    n = graph.back_ns.size
    arrivals = slice(graph.source.size - 2 * n, graph.source.size - n)
    chosen, jitter_ns = np.zeros(graph.source.size, dtype=bool), np.zeros_like(graph.source)
    late = np.isin(graph.rank_of, places)
    chosen[arrivals] = late
    met = graph.target[arrivals] - int(graph.first_node[-1])
    came_ns = [
        start[of >= 0] for start, of in zip(meetings.starts_ns, meetings.of_member, strict=True)
    ]
    beyond_ns = beyond_others(np.concatenate(came_ns), met, late)
    for place in places:
        of_rank = np.flatnonzero(graph.rank_of == place)
        step = graph.rows[place][1].forest.members.step[meetings.of_member[place] >= 0]
        jitter_ns[arrivals.start + of_rank] = _jitter(beyond_ns[of_rank], met[of_rank], step)
    return chosen, jitter_ns


def _jitter(late_ns: IntArray, met: IntArray, step: IntArray) -> IntArray:
    """Return how a rank's lateness varies by chance: from step to step, what is far more left out.

    Args:
        step: Shape (n,), in which step; those of other steps at the same place in it are alike.
    """
    order = np.lexsort((met, step))
    alike = np.empty_like(order)
    alike[order] = position_in_group(step[order])
    every = np.zeros(order.size, dtype=bool)
    apart_ns = beyond_others(late_ns, alike, every)
    far_ns = np.abs(apart_ns)
    usual_ns = far_ns - beyond_others(far_ns, alike, every)
    return np.where(far_ns <= _FAR * usual_ns, apart_ns, 0)


def _edges(
    rows: RankRows,
    meetings: Meetings,
    job: TimedSteps,
    graph: JobGraph,
    at_ns: IntArray,
    late: Mapping[int, Sequence[int]],
) -> tuple[IntArray, IntArray]:
    """Return when steps of the job begin and end, and the node with which each ends."""
    steps_n, columns_n = job.edge_ns.size - 1, at_ns.shape[1]
    ends = np.full((len(rows), steps_n, columns_n), np.iinfo(np.int64).min)
    nodes = np.full(ends.shape, -1, dtype=np.int64)
    begins = []
    for place, (rank, budget) in enumerate(rows):
        has = np.flatnonzero(job.step[place] >= 0)
        step = job.step[place, has]
        for index, device in enumerate(budget.devices if has.size else ()):
            back = meetings.common_ns(rank, device.edge_ns) - device.edge_ns
            first = int(graph.first_node[place])
            begins.append(at_ns[first + budget.replay.begins_from + index] + back[0])
            node = first + budget.replay.ends_from + index * len(budget.mark) + step
            ended_ns = at_ns[node] + back[1:][step, None]
            later = ended_ns > ends[place, has]
            ends[place, has] = np.where(later, ended_ns, ends[place, has])
            nodes[place, has] = np.where(later, node[:, None], nodes[place, has])
    for column, places in late.items():
        # Its steps end no later than the median rank's.
        median_ns = job.median_end_ns(ends[:, :, column])
        ends[places, :, column] = np.minimum(ends[places, :, column], median_ns)
    rank_of = ends.argmax(axis=0)
    last = np.take_along_axis(nodes, rank_of[None], axis=0)[0]
    edge_ns = np.concatenate((np.min(begins, axis=0)[None], ends.max(axis=0)))
    return np.maximum.accumulate(edge_ns, axis=0), last


def new_path(
    replays: JobReplays, column: int, codes: Any, first: int, last: int
) -> tuple[IntArray, int]:
    """Walk back from the end of step `last` to the begin of step `first`.

    Returns:
        Shape (classes,), time: each stretch between two nodes counts as what most of it is; and the
        time to which nothing inferred led within its step.
    """
    edge_of = _held_by(replays, column)
    times = replays.at_ns[:, column] + replays.graph.clock_ns
    at_ns, source = times.data, replays.graph.source.data
    steps = replays.edge_ns[: last + 2, column].tolist()
    time_ns, certain_ns, doubt, step = [0] * len(classes.CLASS_NAMES), 0, False, last
    node, begin_ns = int(replays.last[last, column]), steps[first]
    while node >= 0 and at_ns[node] > begin_ns and edge_of[node] >= 0:
        while at_ns[node] <= steps[step]:
            step, doubt = step - 1, False
        edge = edge_of[node]
        below, code = source[edge], int(codes[edge])
        length_ns = max(at_ns[node] - max(at_ns[below], begin_ns), 0)
        doubt = doubt or code >= DOUBT
        time_ns[code % DOUBT] += length_ns
        certain_ns += 0 if doubt else length_ns
        node = below
    return np.array(time_ns, dtype=np.int64), certain_ns


def _held_by(replays: JobReplays, column: int) -> Any:
    """Return the edge that told the time of each node, -1 for none, shape (nodes,)."""
    graph, order = replays.graph, replays.graph.order
    reported = np.full(graph.base_ns.size, -1, dtype=np.int64)
    at_ns = replays.at_ns[:, column]
    edges, sizes = order.edges, np.diff(order.first)
    ways = at_ns[graph.source[edges]] + replays.ns[edges, column]
    # Where a late rank counts as the median one, its own way is longer than what counts.
    ways[ways > at_ns[graph.target[edges]]] = NEVER
    some = np.flatnonzero(sizes)
    if not some.size:
        return reported.data
    begins = order.first[some]
    longest = np.repeat(np.maximum.reduceat(ways, begins), sizes[some])
    equal = np.flatnonzero(ways == longest)
    reported[order.nodes[some]] = edges[equal[np.searchsorted(equal, begins)]]
    return reported.data
