"""How long each part of a rank's work took, as a replay runs it again.

An operation starts at the latest of its prerequisites' ends, each with its lag. Of what held it
back the lag is the observed one; of all else the smaller of the observed one and the median of its
kind. So unchanged weights give the recorded run to the nanosecond. Pure numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.critical_path.path.edges import Clues, Edges
from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.critical_path.path.sync_rows import Kinds
from nsys_llm.critical_path.replay.lags import LagParts, medians
from nsys_llm.critical_path.replay.links import (
    Links,
    driver_times,
    hand_overs,
    operation_links,
    wait_links,
)
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import BACK_PRESSURE

#: What a call takes that waits for nothing, where none did. Ours.
_OWN_NS: Final = 3_000


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
        unblocked: Shape (waiting calls,), what the call takes if there is nothing to wait for.
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
    unblocked: IntArray
    link: IntArray
    wake: IntArray
    hand: IntArray
    waits: Bools


@dataclass(frozen=True)
class RankGraph:
    """One rank as a replay needs it.

    Attributes:
        links: What operations waited for on other streams.
        waits: What calls waited for; targets are positions in `waiting`.
        waiting: Shape (waiting calls,), these calls, ascending.
        follows: Shape (operations,), whether one stands before it on its stream.
        in_call: Shape (operations,), whether it began inside of its launch.
        usual_wake: As `Weights.wake`, with every lag at the median of its kind.
    """

    edges: Edges
    links: Links
    waits: Links
    waiting: IntArray
    hands: Links
    follows: Bools
    in_call: Bools
    observed: Weights
    usual_wake: IntArray
    lags: LagParts

    @property
    def usual(self) -> Weights:
        """Weights with every lag at the median of its kind; new arrays, as long as the rank."""
        usual, hand = self.lags.of_kinds(), self.observed.hand
        return replace(
            self.observed,
            launch=usual.launch,
            stream=usual.stream,
            link=usual.link,
            wake=self.usual_wake,
            hand=np.full(hand.shape, lower_median(hand) if hand.size else 0),
        )


def rank_graph(edges: Edges, clues: Clues) -> RankGraph:
    """Return a rank with all prerequisites and their lags."""
    ops, calls = edges.ops, edges.host.calls
    links, by_call = operation_links(edges, clues), wait_links(edges, clues)
    hands = hand_overs(edges)
    waiting = np.unique(by_call.target)
    waits = Links(by_call.source, np.searchsorted(waiting, by_call.target), by_call.is_certain)
    follows = np.ones(len(ops), dtype=bool)
    follows[ops.bounds[:-1][np.diff(ops.bounds) > 0]] = False
    in_call = np.zeros(len(ops), dtype=bool)
    if calls.row.size:
        in_call = (ops.place >= 0) & (ops.start_ns < calls.end_ns[np.maximum(ops.place, 0)])
    lags = LagParts.of(edges, links, follows, in_call, clues.early)
    used = lags.used()
    wake, wake_usual, unblocked = _wait_lags(edges, clues.kinds, waits, waiting)
    hand = calls.start_ns[hands.target] - calls.end_ns[hands.source]
    op_ns, call_ns = ops.end_ns - ops.start_ns, calls.end_ns - calls.start_ns
    gap, still = _gaps(edges, hands), np.ones(waits.source.size, dtype=bool)
    observed = Weights(
        op_ns, used.launch, used.stream, gap, call_ns, unblocked, used.link, wake, hand, still
    )
    return RankGraph(
        edges, links, waits, waiting, hands, follows, in_call, observed, wake_usual, lags
    )


def _wait_lags(
    edges: Edges, kinds: Kinds, waits: Links, waiting: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return how long after what they waited for calls returned, usually, and their own time."""
    ops, calls = edges.ops, edges.host.calls
    kind = kinds[waiting] - int(kinds.min(initial=0))
    length_ns = calls.end_ns[waiting] - calls.start_ns[waiting]
    lag = calls.end_ns[waiting[waits.target]] - ops.end_ns[waits.source]
    ended_ns = np.full(waiting.size, np.iinfo(np.int64).min)
    np.maximum.at(ended_ns, waits.target, ops.end_ns[waits.source])
    # What it waited for ended in it: that held it back, else its own time did.
    waited = np.isin(waiting, edges.waits.place) | (ended_ns > calls.start_ns[waiting])
    held = waited[waits.target] & (ops.end_ns[waits.source] == ended_ns[waits.target])
    kinds_n = int(kind.max(initial=0)) + 1
    usual = medians(lag[held], kind[waits.target[held]], kinds_n, 0)
    idle = medians(length_ns[~waited], kind[~waited], kinds_n, _OWN_NS)
    unblocked = np.where(waited, np.minimum(length_ns, np.maximum(idle[kind], 0)), length_ns)
    pressed_ns = driver_times(edges, BACK_PRESSURE)[waiting]
    unblocked = np.where(pressed_ns > 0, length_ns - pressed_ns, unblocked)
    usual = usual[kind[waits.target]]
    return np.where(held, lag, np.minimum(lag, usual)), usual, unblocked


def _gaps(edges: Edges, hands: Links) -> IntArray:
    """Return the time between calls of a thread; before a hand-over no more than usual."""
    calls = edges.host.calls
    gap = calls.start_ns - np.append(calls.start_ns[:1], calls.end_ns[:-1])
    gap[calls.bounds[:-1][np.diff(calls.bounds) > 0]] = 0
    if hands.target.size:
        gap[hands.target] = np.minimum(gap[hands.target], lower_median(gap))
    return gap
