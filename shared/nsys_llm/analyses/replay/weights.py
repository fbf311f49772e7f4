"""How long each part of a rank's work took, as a replay runs it again.

An operation starts at the latest of its prerequisites' ends, each with its lag. Of what held it
back the lag is the observed one; of all else the smaller of the observed one and the median of its
kind. So unchanged weights give the recorded run to the nanosecond. Pure numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.analyses.path.classes import (
    BY_CALL,
    BY_LAUNCH,
    BY_STREAM,
    CALL_INFERRED,
    COPY,
    LAUNCH_INFERRED,
    STREAM_INFERRED,
)
from nsys_llm.analyses.path.edges import Edges
from nsys_llm.analyses.path.ops import Bools, PathOps
from nsys_llm.analyses.replay.links import Links, hand_overs, operation_links, queue_waits, wait_links
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray

_BY_LAUNCHES: Final = (BY_LAUNCH, LAUNCH_INFERRED, BY_CALL, CALL_INFERRED)
_BY_STREAMS: Final = (BY_STREAM, STREAM_INFERRED)


@dataclass(frozen=True)
class Weights:
    """Lengths, ns, int64.

    Attributes:
        op: Shape (operations,), of each.
        launch: Shape (operations,), from the return of its launch to its start; from the call's
            begin where it began inside of the call.
        stream: Shape (operations,), from the end of the operation before it on its stream.
        gap: Shape (calls,), from the return of the call before it on its thread to its begin.
        call: Shape (calls,), of each; of one that waits this is not looked at.
        own: Shape (waiting calls,), what the call takes if there is nothing to wait for.
        link: Shape (operation links,), lags.
        wake: Shape (wait links,), from the end of what is waited for to the return.
        hand: Shape (hand-overs,), lags.
        waits: Shape (wait links,), whether the wait is there.
    """

    op: IntArray
    launch: IntArray
    stream: IntArray
    gap: IntArray
    call: IntArray
    own: IntArray
    link: IntArray
    wake: IntArray
    hand: IntArray
    waits: Bools


@dataclass(frozen=True)
class RankGraph:
    """One rank as a replay needs it.

    Attributes:
        edges: What held its operations and calls back.
        links: What operations waited for on other streams.
        waits: What calls waited for; targets are positions in `waiting`.
        waiting: Shape (waiting calls,), these calls, ascending.
        hands: Hand-overs between threads.
        follows: Shape (operations,), whether one stands before it on its stream.
        in_call: Shape (operations,), whether it began inside of its launch.
        observed: Weights that give the run back.
        usual: The same with every lag at the median of its kind.
    """

    edges: Edges
    links: Links
    waits: Links
    waiting: IntArray
    hands: Links
    follows: Bools
    in_call: Bools
    observed: Weights
    usual: Weights


def rank_graph(edges: Edges) -> RankGraph:
    """Return a rank with all prerequisites and their lags."""
    ops, calls = edges.ops, edges.host.calls
    links, hands, by_call = operation_links(edges), hand_overs(edges), wait_links(edges)
    waiting = np.unique(by_call.target)
    waits = Links(by_call.source, np.searchsorted(waiting, by_call.target), by_call.is_certain)
    follows = np.ones(len(ops), dtype=bool)
    follows[ops.bounds[:-1][np.diff(ops.bounds) > 0]] = False
    in_call = np.zeros(len(ops), dtype=bool)
    if calls.row.size:
        in_call = (ops.place >= 0) & (ops.start_ns < calls.end_ns[np.maximum(ops.place, 0)])
    kind = _lag_kinds(ops)
    launch, launch_usual = _launch_lags(edges, in_call, kind)
    stream, stream_usual = _stream_lags(edges, follows, kind)
    link, link_usual = _link_lags(edges, links, stream_usual)
    wake, wake_usual, own = _wait_lags(edges, waits, waiting)
    hand = calls.start_ns[hands.target] - calls.end_ns[hands.source]
    op_ns, call_ns = ops.end_ns - ops.start_ns, calls.end_ns - calls.start_ns
    gap, still = _gaps(edges, hands), np.ones(waits.source.size, dtype=bool)
    observed = Weights(op_ns, launch, stream, gap, call_ns, own, link, wake, hand, still)
    usual = replace(
        observed,
        launch=launch_usual,
        stream=stream_usual,
        link=link_usual,
        wake=wake_usual,
        hand=np.full(hand.shape, lower_median(hand) if hand.size else 0),
    )
    return RankGraph(edges, links, waits, waiting, hands, follows, in_call, observed, usual)


def _lag_kinds(ops: PathOps) -> IntArray:
    """Return a code for each operation: of one code, lags are of one kind."""
    kind = ops.device_ids[ops.stream] * 4 + 2 * ops.node + (ops.kind == COPY)
    return distinct_codes(kind.astype(np.int64))[1]


def _medians(lag: IntArray, kind: IntArray, kinds_n: int, default_ns: int) -> IntArray:
    """Return the median of each kind, that of all where it has none, else the default."""
    found = np.full(kinds_n, lower_median(lag) if lag.size else default_ns)
    for code in np.unique(kind).tolist():
        found[code] = lower_median(lag[kind == code])
    return found


def _launch_lags(edges: Edges, in_call: Bools, kind: IntArray) -> tuple[IntArray, IntArray]:
    """Return lags of launches, and the usual ones; 0 where the launch is not recorded."""
    ops, calls = edges.ops, edges.host.calls
    none = np.zeros(len(ops), dtype=np.int64)
    if not calls.row.size or not len(ops):
        return none, none
    at, known = np.maximum(ops.place, 0), ops.place >= 0
    lag = ops.start_ns - np.where(in_call, calls.start_ns[at], calls.end_ns[at])
    held = known & np.isin(edges.edge[: len(ops)], _BY_LAUNCHES)
    usual, kinds_n = none.copy(), int(kind.max()) + 1
    for inside in (False, True):
        rows = known & (in_call == inside)
        chosen = rows & held
        least = int(lag[rows].min(initial=0)) if rows.any() else 0
        usual[rows] = _medians(lag[chosen], kind[chosen], kinds_n, max(least, 0))[kind[rows]]
    return np.where(held, lag, np.minimum(lag, usual)) * known, usual


def _stream_lags(edges: Edges, follows: Bools, kind: IntArray) -> tuple[IntArray, IntArray]:
    """Return lags behind the operation before on the stream, and the usual ones."""
    ops = edges.ops
    if not len(ops):
        return np.zeros((2, 0), dtype=np.int64)[0], np.zeros(0, dtype=np.int64)
    lag = ops.start_ns - np.append(ops.start_ns[:1], ops.end_ns[:-1])
    before = edges.before[: len(ops)] == np.arange(-1, len(ops) - 1)
    held = follows & before & np.isin(edges.edge[: len(ops)], _BY_STREAMS)
    sure = held & ~edges.unexplained
    usual = _medians(lag[sure], kind[sure], int(kind.max()) + 1, 0)[kind]
    usual = np.where(edges.unexplained, lag, usual) * follows
    return np.where(held, lag, np.minimum(lag, usual)) * follows, usual


def _link_lags(edges: Edges, links: Links, stream_usual: IntArray) -> tuple[IntArray, IntArray]:
    """Return lags behind operations of other streams, and the usual ones: those of streams."""
    ops = edges.ops
    lag = ops.start_ns[links.target] - ops.end_ns[links.source]
    held = edges.before[links.target] == links.source
    usual = stream_usual[links.target]
    if held.any():
        usual = np.where(usual > 0, usual, lower_median(lag[held]))
    return np.where(held, lag, np.minimum(lag, usual)), usual


def _wait_lags(
    edges: Edges, waits: Links, waiting: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return how long after what they waited for calls returned, usually, and their own time."""
    ops, calls = edges.ops, edges.host.calls
    kind = edges.clues.kinds[waiting] - int(edges.clues.kinds.min(initial=0))
    length_ns = calls.end_ns[waiting] - calls.start_ns[waiting]
    lag = calls.end_ns[waiting[waits.target]] - ops.end_ns[waits.source]
    ended_ns = np.full(waiting.size, np.iinfo(np.int64).min)
    np.maximum.at(ended_ns, waits.target, ops.end_ns[waits.source])
    # What it waited for ended in it: that held it back, else its own time did.
    waited = np.isin(waiting, edges.waits.place) | (ended_ns > calls.start_ns[waiting])
    held = waited[waits.target] & (ops.end_ns[waits.source] == ended_ns[waits.target])
    kinds_n = int(kind.max(initial=0)) + 1
    usual = _medians(lag[held], kind[waits.target[held]], kinds_n, 0)
    idle = _medians(length_ns[~waited], kind[~waited], kinds_n, int(usual.min(initial=0)))
    own = np.where(waited, np.minimum(length_ns, np.maximum(idle[kind], 0)), length_ns)
    pressed_ns = queue_waits(edges)[waiting]
    own = np.where(pressed_ns > 0, length_ns - pressed_ns, own)
    usual = usual[kind[waits.target]]
    return np.where(held, lag, np.minimum(lag, usual)), usual, own


def _gaps(edges: Edges, hands: Links) -> IntArray:
    """Return the time between calls of a thread; before a hand-over no more than usual."""
    calls = edges.host.calls
    gap = calls.start_ns - np.append(calls.start_ns[:1], calls.end_ns[:-1])
    gap[calls.bounds[:-1][np.diff(calls.bounds) > 0]] = 0
    if hands.target.size:
        gap[hands.target] = np.minimum(gap[hands.target], lower_median(gap))
    return gap
