"""Weights of a rank's edges under some change, and what most of each edge's time is. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.classes import (
    CLASS_OF_CAUSE,
    COMPUTE,
    DEVICE_LATENCY,
    HOST_NO_CUDA,
    LAST_CERTAIN,
    LAUNCH_LATENCY,
    SYNC_LATENCY,
)
from nsys_llm.critical_path.replay.skeleton import (
    AFTER,
    BEGIN,
    HAND,
    LAUNCH,
    LENGTH,
    LINK,
    NEVER,
    OWN,
    RESUMED,
    STREAM,
    TAIL,
    WAKE,
    Marks,
    Skeleton,
)
from nsys_llm.critical_path.replay.weights import RankGraph, Weights
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.intervals import IntArray

#: Added to the class of an edge to which something inferred led.
DOUBT: Final = 64

#: Every lag at the median of its kind; no change, but what tells how far replays can be believed.
USUAL: Final = "usual"

Codes = npt.NDArray[np.uint8]
#: Time by class, shape (edges,) of each class that there is.
_Sums = dict[int, IntArray]


@dataclass(frozen=True)
class RankReplay:
    """The graph of one rank for replays; its nodes and edges are those of a `Skeleton`.

    Attributes:
        reason: Why there is none; "" where there is.
        columns: Names of the weights: "" for those that give the run back, then changes, last
            `USUAL`. A change that is not there changes nothing.
        base_ns: Shape (nodes,), the profile's clock.
        source: Shape (edges,).
        target: Shape (edges,).
        ns: Shape (edges, columns), weights; the least number of its type where one is not there.
        code: Shape (edges, columns before `USUAL`), uint8, see `Condenser.codes`.
        member_start: Shape (members,), node of the start of each communication operation.
        begun: The nodes of the begins of threads' first calls, which nothing precedes.
        ends_from: The node of the first end: of each device, of each step.
        begins_from: The node of the begin of the first step of the first device.
    """

    reason: str
    columns: tuple[str, ...]
    base_ns: IntArray
    source: npt.NDArray[np.int32]
    target: npt.NDArray[np.int32]
    ns: npt.NDArray[np.int32] | IntArray
    code: npt.NDArray[np.uint8]
    member_start: IntArray
    member_end: IntArray
    begun: IntArray
    ends_from: int
    begins_from: int

    def column(self, name: str) -> int:
        """Return the place of a change; of one that changes nothing, that of the run."""
        return self.columns.index(name) if name in self.columns else 0

    @classmethod
    def without(cls, reason: str) -> RankReplay:
        """Return that of a rank that is not replayed."""
        none = np.empty(0, dtype=np.int64)
        edges, columns = none.astype(np.int32), none.reshape(0, 0)
        codes = columns.astype(np.uint8)
        return cls(reason, (), none, edges, edges, columns, codes, none, none, none, 0, 0)


@dataclass(frozen=True)
class _Lines:
    """Sums along threads and streams.

    Attributes:
        begun: Shape (calls,), from the begin of all threads' first call to the begin of each.
        returned: Likewise, to its return.
        ended: Shape (operations,), lags and lengths up to its end.
    """

    begun: IntArray
    returned: IntArray
    ended: IntArray

    @classmethod
    def of(cls, gap: IntArray, call: IntArray, stream: IntArray, op: IntArray) -> _Lines:
        returned = np.cumsum(gap + call)
        return cls(returned - call, returned, np.cumsum(stream + op))


class Condenser:
    """Gives the edges of one rank their weights."""

    def __init__(self, graph: RankGraph, marks: Marks, skeleton: Skeleton) -> None:
        self.graph, self.marks, self.skeleton = graph, marks, skeleton
        ops = graph.edges.ops
        self._rows = [np.flatnonzero(skeleton.kind == code) for code in range(BEGIN + 1)]
        self._place, self._in_call = np.maximum(ops.place, 0), np.flatnonzero(graph.in_call)
        member = np.zeros(len(ops), dtype=bool)
        member[marks.members] = True
        self._read = ~member  # the end of a member is a node of its own
        doubtful = graph.edges.edge[: len(ops)] > LAST_CERTAIN
        self._doubts = np.cumsum(doubtful, dtype=np.int32)
        self._classes = np.array(CLASS_OF_CAUSE, dtype=np.int8)[graph.edges.host.cause]
        self._op_kinds, self._call_kinds = _used(ops.kind), _used(self._classes)
        self._totals: dict[tuple[int, int], IntArray] = {}

    def _total(self, ns: IntArray, classes: npt.NDArray[Any], kind: int) -> IntArray:
        """Return for how long something of a class went on before each item, and last in all."""
        key = id(ns), kind
        if key in self._totals:
            return self._totals[key]
        total = np.zeros(ns.size + 1, dtype=np.int64)
        np.cumsum(np.where(classes == kind, ns, 0), out=total[1:])
        # Most changes leave most lengths as they were observed.
        if ns is self.graph.observed.op or ns is self.graph.observed.call:
            self._totals[key] = total
        return total

    def forget(self) -> None:
        """Forget the sums that `codes` keeps for the next column; they are as long as the rank."""
        self._totals.clear()

    def weights(self, weights: Weights) -> tuple[IntArray, IntArray]:
        """Return the weight of each edge, and of launch edges the operation that it leads through.

        `NEVER` of an edge that is not there.
        """
        skeleton = self.skeleton
        lines = _Lines.of(weights.gap, weights.call, weights.stream, weights.op)
        ns = np.zeros(skeleton.source.size, dtype=np.int64)
        nodes = np.where(
            skeleton.is_return, lines.returned[skeleton.at_call], lines.begun[skeleton.at_call]
        )
        through = self._stream_weights(ns, weights, lines, nodes)
        graph = self.graph
        row, item = self._of(LINK)
        ns[row] = weights.link + self._read_ns(weights, graph.links.source)
        row, item = self._of(WAKE)
        wake = weights.wake + self._read_ns(weights, graph.waits.source)
        ns[row] = np.where(weights.waits, wake, NEVER)
        row, item = self._of(OWN)
        begun = lines.begun[graph.waiting] - nodes[skeleton.source[row]]
        ns[row] = begun + weights.unblocked
        row, item = self._of(RESUMED)
        ns[row] = lines.returned[item - 1] - nodes[skeleton.source[row]] + weights.gap[item]
        row, item = self._of(HAND)
        returned = lines.returned[graph.hands.source] - nodes[skeleton.source[row]]
        ns[row] = returned + weights.hand
        row, item = self._of(LENGTH)
        ns[row] = weights.op[item]
        row, item = self._of(TAIL)
        ns[row] = self._read_ns(weights, item)
        row, item = self._of(AFTER)
        ns[row] = 0 if self.marks.begin_is_start else self._read_ns(weights, item)
        row, item = self._of(BEGIN)
        ns[row] = self._begins(item, weights, lines) - nodes[skeleton.source[row]]
        return ns, through

    def _read_ns(self, weights: Weights, op: IntArray) -> IntArray:
        """Return the lengths of operations; 0 of members, whose ends are nodes."""
        return weights.op[op] * self._read[op]

    def _of(self, kind: int) -> tuple[IntArray, IntArray]:
        rows = self._rows[kind]
        return rows, self.skeleton.item[rows]

    def _stream_weights(
        self, ns: IntArray, weights: Weights, lines: _Lines, nodes: IntArray
    ) -> IntArray:
        skeleton, inner = self.skeleton, self.skeleton.inner
        row, at = self._of(STREAM)
        lower, upper = inner[at - 1], inner[at]
        begun = lines.ended[upper] - weights.op[upper]
        ns[row] = begun - lines.ended[lower] + self._read_ns(weights, lower)
        row, _ = self._of(LAUNCH)
        if not row.size:
            return np.empty(0, dtype=np.int64)
        launched = lines.returned[self._place]
        launched[self._in_call] = lines.begun[self._place[self._in_call]]
        launched += weights.launch
        launched += weights.op
        launched -= lines.ended
        latest = np.maximum.reduceat(launched, skeleton.groups)
        ns[row] = latest[skeleton.group_of] - nodes[skeleton.source[row]]
        target = inner[skeleton.group_target]
        ns[row] += lines.ended[target] - weights.op[target]
        sizes = np.diff(np.append(skeleton.groups, launched.size))
        equal = np.flatnonzero(launched == np.repeat(latest, sizes))
        first = np.searchsorted(equal, skeleton.groups[skeleton.group_of])
        return equal[first]

    def _begins(self, call: IntArray, weights: Weights, lines: _Lines) -> IntArray:
        """Return the way along a thread to the begin of the first step."""
        at_ns, calls = self.marks.call_ns, self.graph.edges.host.calls
        following = np.minimum(call + 1, calls.row.size - 1)
        gap_ns = weights.gap[following]
        unchanged = gap_ns == self.graph.observed.gap[following]
        unchanged |= calls.thread[following] != calls.thread[call]
        rest_ns = at_ns - calls.end_ns[call]
        rest_ns = np.where(unchanged, rest_ns, np.minimum(rest_ns, gap_ns))
        inside_ns = np.minimum(at_ns - calls.start_ns[call], weights.call[call])
        after = at_ns >= calls.end_ns[call]
        return np.where(after, lines.returned[call] + rest_ns, lines.begun[call] + inside_ns)

    def codes(self, weights: Weights, through: IntArray) -> Codes:
        """Return the class of most of each edge's time, and `DOUBT` where it is not certain."""
        skeleton, graph = self.skeleton, self.graph
        code = np.zeros(skeleton.source.size, dtype=np.uint8)
        kind = graph.edges.ops.kind
        for edge_kind, fixed in (
            (WAKE, SYNC_LATENCY),
            (RESUMED, HOST_NO_CUDA),
            (HAND, HOST_NO_CUDA),
        ):
            code[self._rows[edge_kind]] = fixed
        code[self._rows[BEGIN]] = HOST_NO_CUDA
        for edge_kind, sources in ((LINK, graph.links.source), (WAKE, graph.waits.source)):
            lag = weights.link if edge_kind == LINK else weights.wake
            longer = self._read_ns(weights, sources) > lag
            latency = DEVICE_LATENCY if edge_kind == LINK else SYNC_LATENCY
            code[self._rows[edge_kind]] = np.where(longer, kind[sources], latency)
        for edge_kind in (LENGTH, TAIL, AFTER):
            rows, item = self._of(edge_kind)
            code[rows] = kind[item]
        self._along_streams(code, weights, through)
        self._along_threads(code, weights)
        code[self._doubtful(through)] += DOUBT
        return code

    def _along_streams(self, code: Codes, weights: Weights, through: IntArray) -> None:
        """Set the classes of edges between streams' nodes, and of launches, in place."""
        graph, skeleton, inner = self.graph, self.skeleton, self.skeleton.inner
        ops = graph.edges.ops
        row, at = self._of(STREAM)
        lower, upper = inner[at - 1], inner[at]
        lags: IntArray = np.cumsum(weights.stream)
        sums = self._op_sums(weights, upper, lower + ~self._read[lower])
        _add(sums, DEVICE_LATENCY, lags[upper] - lags[lower])
        code[row] = _most(sums)
        row, _ = self._of(LAUNCH)
        if not row.size:
            return
        upper = inner[skeleton.group_target]
        sums = self._op_sums(weights, upper, through)
        _add(sums, DEVICE_LATENCY, lags[upper] - lags[through])
        returned = ~graph.in_call[through]
        self._thread_sums(sums, weights, skeleton.source[row], ops.place[through], returned)
        _add(sums, LAUNCH_LATENCY, weights.launch[through])
        code[row] = _most(sums)

    def _op_sums(self, weights: Weights, upper: IntArray, first: IntArray) -> _Sums:
        sums: _Sums = {}
        for kind in self._op_kinds:
            total = self._total(weights.op, self.graph.edges.ops.kind, kind)
            sums[kind] = total[upper] - total[first]
        return sums

    def _along_threads(self, code: Codes, weights: Weights) -> None:
        """Set the classes of edges between threads' nodes, in place."""
        skeleton, graph = self.skeleton, self.graph
        row, _ = self._of(OWN)
        if not row.size:
            return
        sums: _Sums = {}
        self._thread_sums(
            sums, weights, skeleton.source[row], graph.waiting, np.zeros(row.size, dtype=bool)
        )
        classes = self._classes[graph.waiting]
        for kind in _used(classes):
            _add(sums, kind, np.where(classes == kind, weights.unblocked, 0))
        code[row] = _most(sums)

    def _thread_sums(
        self,
        sums: _Sums,
        weights: Weights,
        source: IntArray,
        call: IntArray | Positions,
        returned: npt.NDArray[np.bool_],
    ) -> None:
        """Add what threads did between nodes and the begins or returns of calls, in place."""
        skeleton = self.skeleton
        at, is_return = skeleton.at_call[source], skeleton.is_return[source]
        for kind in self._call_kinds:
            total = self._total(weights.call, self._classes, kind)
            _add(sums, kind, total[call + returned] - total[at + is_return])
        gaps: IntArray = np.cumsum(weights.gap)
        _add(sums, HOST_NO_CUDA, gaps[call] - gaps[at])

    def _doubtful(self, through: IntArray) -> npt.NDArray[np.bool_]:
        skeleton, graph, doubts = self.skeleton, self.graph, self._doubts
        doubtful = np.zeros(skeleton.source.size, dtype=bool)
        row, at = self._of(STREAM)
        doubtful[row] = doubts[skeleton.inner[at]] > doubts[skeleton.inner[at - 1]]
        row, _ = self._of(LAUNCH)
        before = doubts[through] - (graph.edges.edge[through] > LAST_CERTAIN)
        doubtful[row] = doubts[skeleton.inner[skeleton.group_target]] > before
        doubtful[self._rows[LINK]] = ~graph.links.is_certain
        doubtful[self._rows[WAKE]] = ~graph.waits.is_certain
        doubtful[self._rows[HAND]] = True
        return doubtful


def _used(classes: npt.NDArray[np.int8]) -> list[int]:
    return np.flatnonzero(np.bincount(classes)).tolist()


def _add(sums: _Sums, kind: int, ns: IntArray) -> None:
    sums[kind] = sums[kind] + ns if kind in sums else ns


def _most(sums: _Sums) -> Codes:
    """Return the class with most time, the first of several; `COMPUTE` where none has any."""
    some = next(iter(sums.values()))
    code = np.full(some.shape, COMPUTE, dtype=np.uint8)
    most = np.maximum(sums.get(COMPUTE, 0), np.zeros_like(some))
    for kind in sorted(sums):
        code[sums[kind] > most] = kind
        np.maximum(most, sums[kind], out=most)
    return code
