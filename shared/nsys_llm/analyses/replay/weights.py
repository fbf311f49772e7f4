"""How long each part of a rank's work took, as a replay runs it again.

An operation starts at the latest of its prerequisites' ends, each with its lag. Of what held it
back the lag is the observed one; of all else the smaller of the observed one and the median of its
kind. So unchanged weights give the recorded run to the nanosecond. Pure numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.analyses.path.classes import COPY
from nsys_llm.analyses.path.edges import Edges
from nsys_llm.analyses.path.ops import Bools, PathOps
from nsys_llm.analyses.replay.links import (
    Links,
    hand_overs,
    operation_links,
    queue_waits,
    wait_links,
)
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray

#: A launch that was done so many times its usual lag before something else ended did not matter.
_LONG_AGO_TIMES: Final = 2
#: Lags that no operation shows: of a launch, and of a stream; 5 % of all on H100s are shorter.
_LAUNCH_LAG_NS: Final = 2_000
_STREAM_LAG_NS: Final = 1_000
#: Lags up to this, and up to so many times the usual one, need no further explanation, as in
#: `nsys_llm.analyses.path.lags`.
UNEXPLAINED_NS: Final = 3_000
_UNEXPLAINED_TIMES: Final = 3
#: What a call takes that waits for nothing, where none did. Ours.
_OWN_NS: Final = 3_000
_NEVER: Final = -(1 << 60)


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
        edges: What held its operations and calls back.
        links: What operations waited for on other streams.
        waits: What calls waited for; targets are positions in `waiting`.
        waiting: Shape (waiting calls,), these calls, ascending.
        hands: Hand-overs between threads.
        follows: Shape (operations,), whether one stands before it on its stream.
        in_call: Shape (operations,), whether it began inside of its launch.
        observed: Weights that give the run back.
        usual: The same with every lag at the median of its kind.
        most: Whether what no profile shows is at the most in `observed`; None where it is as usual.
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
    most: bool | None = None

    def with_unseen_lags(self, *, most: bool) -> RankGraph:
        """Return the graph with lags that held nothing back at the least or the most of their kind.

        How long these are is not recorded; those that held something back stay as observed. They
        are nothing at least. At most they are as observed, and no longer than any that is shown or
        needs no further explanation; of a kind of launches that none shows, as observed.
        """
        edges, links, follows = self.edges, self.links, self.follows
        if not len(edges.ops):
            return self
        seen = _lags(edges, links, follows, self.in_call)
        usual = _Lags(self.usual.launch, self.usual.stream, self.usual.link)
        pick = _LARGEST if most else _SMALLEST
        bound = _usual_lags(edges, links, follows, self.in_call, seen, pick)
        used = _used_lags(edges, links, follows, seen, usual, bound)
        lags = replace(self.observed, launch=used.launch, stream=used.stream, link=used.link)
        return replace(self, observed=lags, most=most)


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
    seen = _lags(edges, links, follows, in_call)
    often = _usual_lags(edges, links, follows, in_call, seen)
    used = _used_lags(edges, links, follows, seen, often, often)
    wake, wake_usual, unblocked = _wait_lags(edges, waits, waiting)
    hand = calls.start_ns[hands.target] - calls.end_ns[hands.source]
    op_ns, call_ns = ops.end_ns - ops.start_ns, calls.end_ns - calls.start_ns
    gap, still = _gaps(edges, hands), np.ones(waits.source.size, dtype=bool)
    observed = Weights(
        op_ns, used.launch, used.stream, gap, call_ns, unblocked, used.link, wake, hand, still
    )
    usual = replace(
        observed,
        launch=often.launch,
        stream=often.stream,
        link=often.link,
        wake=wake_usual,
        hand=np.full(hand.shape, lower_median(hand) if hand.size else 0),
    )
    return RankGraph(edges, links, waits, waiting, hands, follows, in_call, observed, usual)


def _lag_kinds(ops: PathOps) -> IntArray:
    """Return a code for each operation: of one code, lags are of one kind."""
    kind = ops.device_ids[ops.stream] * 4 + 2 * ops.node + (ops.kind == COPY)
    return distinct_codes(kind.astype(np.int64))[1]


@dataclass(frozen=True)
class _Pick:
    """Which of the lags of a kind stands for all of them.

    Attributes:
        of: Returns it.
        launch_ns: Of launches where no operation shows it; None for what `_usual_lags` takes.
        stream_ns: Likewise, of streams.
    """

    of: Callable[[IntArray], int]
    launch_ns: int | None = None
    stream_ns: int | None = None


_MEDIAN: Final = _Pick(lower_median)
_SMALLEST: Final = _Pick(lambda _: 0, 0, 0)
_LARGEST: Final = _Pick(
    lambda lag: max(int(lag.max()), _UNEXPLAINED_TIMES * lower_median(lag), UNEXPLAINED_NS),
    1 << 60,
    UNEXPLAINED_NS,
)


def _medians(
    lag: IntArray,
    kind: IntArray,
    kinds_n: int,
    default_ns: int,
    pick: _Pick = _MEDIAN,
    *,
    apart: bool = False,
) -> IntArray:
    """Return the median of each kind; where it has none that of all, unless kinds are apart.

    Or the least, or the most.
    """
    medians = np.full(kinds_n, pick.of(lag) if lag.size and not apart else default_ns)
    for code in np.unique(kind).tolist():
        medians[code] = pick.of(lag[kind == code])
    return medians


@dataclass(frozen=True)
class _Lags:
    """Lags of launches and streams, shape (operations,), and of links, shape (links,)."""

    launch: IntArray
    stream: IntArray
    link: IntArray


def _lags(edges: Edges, links: Links, follows: Bools, in_call: Bools) -> _Lags:
    """Return lags as observed; 0 where there is no such edge."""
    ops, calls = edges.ops, edges.host.calls
    launch = np.zeros(len(ops), dtype=np.int64)
    if calls.row.size:
        at = np.maximum(ops.place, 0)
        done_ns = np.where(in_call, calls.start_ns[at], calls.end_ns[at])
        launch = (ops.start_ns - done_ns) * (ops.place >= 0)
    stream = (ops.start_ns - np.append(ops.start_ns[:1], ops.end_ns[:-1])[: len(ops)]) * follows
    return _Lags(launch, stream, ops.start_ns[links.target] - ops.end_ns[links.source])


def _usual_lags(
    edges: Edges,
    links: Links,
    follows: Bools,
    in_call: Bools,
    seen: _Lags,
    pick: _Pick = _MEDIAN,
) -> _Lags:
    """Return the medians of lags where nothing else can have mattered, or the least or the most.

    Of a launch, where the stream had ended before the call began; of a stream, where the launch was
    done long before the operation ahead ended: it had returned, since where in a call it is done is
    not recorded.
    """
    ops, calls = edges.ops, edges.host.calls
    if not len(ops):
        return seen
    kind = _lag_kinds(ops)
    kinds_n, known = int(kind.max()) + 1, ops.place >= 0
    ahead_ns = np.where(follows, ops.start_ns - seen.stream, ops.start_ns.min())
    called_ns = calls.start_ns[np.maximum(ops.place, 0)] if calls.row.size else ops.start_ns
    plain = np.ones(len(ops), dtype=bool)
    plain[links.target] = False
    launch, picked = np.zeros((2, len(ops)), dtype=np.int64)
    least_ns = _LAUNCH_LAG_NS
    for inside in (False, True):
        rows = known & (in_call == inside)
        if rows.any():
            sure = rows & plain & (ahead_ns <= called_ns)
            least_ns = max(min(int(seen.launch[rows].min()), least_ns), 0)
            usual = _medians(seen.launch[sure], kind[sure], kinds_n, least_ns, apart=inside)
            launch[rows] = usual[kind[rows]]
            default_ns = least_ns if pick.launch_ns is None else pick.launch_ns
            shown = _medians(seen.launch[sure], kind[sure], kinds_n, default_ns, pick, apart=inside)
            picked[rows] = shown[kind[rows]]
            least_ns = int(usual.min()) if sure.any() else least_ns
    queued = follows & plain & known & ~in_call & (seen.stream >= 0)
    queued &= ops.start_ns - seen.launch + _LONG_AGO_TIMES * launch <= ahead_ns
    single = seen.stream[queued & ~ops.node]
    default_ns = _STREAM_LAG_NS if pick.stream_ns is None else pick.stream_ns
    usual_ns = pick.of(single) if single.size else default_ns
    stream = _medians(seen.stream[queued], kind[queued], kinds_n, usual_ns, pick, apart=True)[kind]
    link = stream[links.target]
    return _Lags(picked, np.where(edges.unexplained, seen.stream, stream) * follows, link)


def _used_lags(
    edges: Edges, links: Links, follows: Bools, seen: _Lags, often: _Lags, most: _Lags
) -> _Lags:
    """Return the observed lags of what held operations back, of all else no more than `most`.

    What held one back is what usually, by `often`, would have allowed the latest start.
    """
    known = edges.ops.place >= 0
    # By how much later than it did an operation would have started; what is not there, never.
    launch = np.where(known, np.minimum(often.launch - seen.launch, 0), _NEVER)
    stream = np.where(follows, np.minimum(often.stream - seen.stream, 0), _NEVER)
    link = np.minimum(often.link - seen.link, 0)
    latest = np.maximum(launch, stream)
    np.maximum.at(latest, links.target, link)
    return _Lags(
        np.where(launch == latest, seen.launch, np.minimum(seen.launch, most.launch)) * known,
        np.where(stream == latest, seen.stream, np.minimum(seen.stream, most.stream)) * follows,
        np.where(link == latest[links.target], seen.link, np.minimum(seen.link, most.link)),
    )


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
    idle = _medians(length_ns[~waited], kind[~waited], kinds_n, _OWN_NS)
    unblocked = np.where(waited, np.minimum(length_ns, np.maximum(idle[kind], 0)), length_ns)
    pressed_ns = queue_waits(edges)[waiting]
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
