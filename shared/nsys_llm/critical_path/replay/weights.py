"""How long each part of a rank's work took, as a replay runs it again.

An operation starts at the latest of its prerequisites' ends, each with its lag. Of what held it
back the lag is the observed one; of all else the smaller of the observed one and the median of its
kind. So unchanged weights give the recorded run to the nanosecond. Pure numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.classes import COPY
from nsys_llm.critical_path.path.edges import Clues, Edges
from nsys_llm.critical_path.path.lags import medians
from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.critical_path.path.sync_rows import Kinds
from nsys_llm.critical_path.replay.links import (
    Links,
    driver_times,
    hand_overs,
    operation_links,
    wait_links,
)
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import BACK_PRESSURE

#: A launch that was done so many times its usual lag before something else ended did not matter.
_LONG_AGO_TIMES: Final = 2
#: Lags that no operation shows: of a launch, and of a stream; 5 % of all on H100s are shorter.
_LAUNCH_LAG_NS: Final = 2_000
_STREAM_LAG_NS: Final = 1_000
_NEVER: Final = -(1 << 60)

LagKinds = npt.NDArray[np.int16]
#: What a call takes that waits for nothing, where none did. Ours.
_OWN_NS: Final = 3_000


@dataclass(frozen=True)
class _Lags:
    """Lags of launches and streams, shape (operations,), and of links, shape (links,)."""

    launch: IntArray
    stream: IntArray
    link: IntArray


@dataclass(frozen=True)
class _ByKind:
    """One lag for each kind: of launches shape (2 * kinds + 1,), of streams shape (kinds + 1,).

    Of launches, those of operations that began inside of the call come after the others. The last
    is that of an operation without such an edge: 0.
    """

    launch: IntArray
    stream: IntArray


@dataclass(frozen=True)
class LagParts:
    """Observed lags, those of kinds, and which of them held operations back.

    Attributes:
        seen: As observed; 0 where there is no such edge.
        launch: Shape (operations,), position in `_ByKind.launch`.
        stream: Shape (operations,), position in `_ByKind.stream`.
        link: Shape (links,), likewise.
        fixed: Operations of which the stream's lag is the observed one in any case: unexplained
            ones, and those that began early, by which it is below 0.
        held: Shapes (operations,), (operations,), (links,): which launches, streams and links
            usually would have allowed the latest start.
    """

    seen: _Lags
    launch: LagKinds
    stream: LagKinds
    link: LagKinds
    fixed: IntArray
    usual: _ByKind
    held: tuple[Bools, Bools, Bools]

    @classmethod
    def of(
        cls, edges: Edges, links: Links, follows: Bools, in_call: Bools, early: IntArray
    ) -> LagParts:
        """Return those of a rank."""
        ops, (_, device) = edges.ops, distinct_codes(edges.ops.device_ids)
        kind = 4 * device[ops.stream] + 2 * ops.node + (ops.kind == COPY)
        kind = distinct_codes(kind)[1].astype(np.int16)
        seen = _lags(edges, links, follows, in_call)
        kinds_n, known = int(kind.max(initial=-1)) + 1, ops.place >= 0
        launch = np.where(known, kind + kinds_n * in_call, 2 * kinds_n).astype(np.int16)
        stream = np.where(follows, kind, kinds_n).astype(np.int16)
        usual = _by_kind(edges, links, follows, in_call, seen, kind)
        none = np.empty(0, dtype=bool)
        parts = cls(
            seen=seen,
            launch=launch,
            stream=stream,
            link=kind[links.target],
            fixed=np.union1d(np.flatnonzero(edges.unexplained), early),
            usual=usual,
            held=(none, none, none),
        )
        return replace(parts, held=_held(parts, links, follows, known))

    def of_kinds(self) -> _Lags:
        """Return for each launch, stream and link the usual lag of its kind."""
        stream = self.usual.stream[self.stream]
        stream[self.fixed] = self.seen.stream[self.fixed]
        return _Lags(self.usual.launch[self.launch], stream, self.usual.stream[self.link])

    def used(self) -> _Lags:
        """Return the observed lags of what held operations back, of all else at most usual ones."""
        usual, seen, (launch, stream, link) = self.of_kinds(), self.seen, self.held
        return _Lags(
            np.where(launch, seen.launch, np.minimum(seen.launch, usual.launch)),
            np.where(stream, seen.stream, np.minimum(seen.stream, usual.stream)),
            np.where(link, seen.link, np.minimum(seen.link, usual.link)),
        )


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


def _by_kind(
    edges: Edges, links: Links, follows: Bools, in_call: Bools, seen: _Lags, kind: LagKinds
) -> _ByKind:
    """Return the medians of lags where nothing else can have mattered.

    Of a launch, where the stream had ended before the call began; of a stream, where the launch was
    done long before the operation ahead ended: it had returned, since where in a call it is done is
    not recorded.
    """
    ops = edges.ops
    kinds_n, known = int(kind.max(initial=-1)) + 1, ops.place >= 0
    if not kinds_n:
        none = np.zeros(1, dtype=np.int64)
        return _ByKind(none, none)
    ahead_ns = np.where(follows, ops.start_ns - seen.stream, ops.start_ns.min())
    plain = np.ones(len(ops), dtype=bool)
    plain[links.target] = False
    alone = known & plain & (ahead_ns <= ops.called_ns(edges.host))
    launch, least_ns = np.zeros(2 * kinds_n + 1, dtype=np.int64), _LAUNCH_LAG_NS
    for inside in (False, True):
        rows = known & (in_call == inside)
        if not rows.any():
            continue
        sure = np.flatnonzero(alone & rows)
        lag, sure_kind = seen.launch[sure], kind[sure]
        least_ns = max(min(int(seen.launch[rows].min()), least_ns), 0)
        some = launch[kinds_n : 2 * kinds_n] if inside else launch[:kinds_n]
        some[:] = medians(lag, sure_kind, kinds_n, least_ns, apart=inside)
        least_ns = int(some.min()) if sure.size else least_ns
    queued = follows & plain & known & ~in_call & (seen.stream >= 0)
    queued &= ops.start_ns - seen.launch + (_LONG_AGO_TIMES * launch[:kinds_n])[kind] <= ahead_ns
    chosen = np.flatnonzero(queued)
    lag, lag_kind = seen.stream[chosen], kind[chosen]
    single = lag[~ops.node[chosen]]
    usual_ns = lower_median(single) if single.size else _STREAM_LAG_NS
    stream = medians(lag, lag_kind, kinds_n, usual_ns, apart=True)
    return _ByKind(launch, np.append(stream, 0))


def _held(
    parts: LagParts, links: Links, follows: Bools, known: Bools
) -> tuple[Bools, Bools, Bools]:
    """Return which launches, streams and links usually would have allowed the latest start."""
    often, seen = parts.of_kinds(), parts.seen
    # By how much later than it did an operation would have started; what is not there, never.
    launch = np.where(known, np.minimum(often.launch - seen.launch, 0), _NEVER)
    stream = np.where(follows, np.minimum(often.stream - seen.stream, 0), _NEVER)
    link = np.minimum(often.link - seen.link, 0)
    latest = np.maximum(launch, stream)
    np.maximum.at(latest, links.target, link)
    return launch == latest, stream == latest, link == latest[links.target]


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
