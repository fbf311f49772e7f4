"""Lags of operations: as observed and usual, and which held one back.

Of what held an operation back the observed lag counts, of all else no more than that of its kind.
Pure numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.classes import COPY
from nsys_llm.critical_path.path.edges import Edges
from nsys_llm.critical_path.path.ops import Bools, PathOps
from nsys_llm.critical_path.replay.links import Links
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray

#: A launch that was done so many times its usual lag before something else ended did not matter.
_LONG_AGO_TIMES: Final = 2
#: Lags that no operation shows: of a launch, and of a stream; 5 % of all on H100s are shorter.
_LAUNCH_LAG_NS: Final = 2_000
_STREAM_LAG_NS: Final = 1_000
_NEVER: Final = -(1 << 60)

Kinds = npt.NDArray[np.int16]


def _lag_kinds(ops: PathOps) -> Kinds:
    _, device = distinct_codes(ops.device_ids)
    kind = 4 * device[ops.stream] + 2 * ops.node + (ops.kind == COPY)
    return distinct_codes(kind)[1].astype(np.int16)


def medians(
    lag: IntArray,
    kind: npt.NDArray[Any],
    kinds_n: int,
    default_ns: int,
    *,
    apart: bool = False,
) -> IntArray:
    """Return the median of each kind; where it has none that of all, unless kinds are apart."""
    medians = np.full(kinds_n, lower_median(lag) if lag.size and not apart else default_ns)
    for code in np.flatnonzero(np.bincount(kind)).tolist():
        medians[code] = lower_median(lag[kind == code])
    return medians


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
    launch: Kinds
    stream: Kinds
    link: Kinds
    fixed: IntArray
    usual: _ByKind
    held: tuple[Bools, Bools, Bools]

    @classmethod
    def of(
        cls, edges: Edges, links: Links, follows: Bools, in_call: Bools, early: IntArray
    ) -> LagParts:
        """Return those of a rank."""
        seen, kind = _lags(edges, links, follows, in_call), _lag_kinds(edges.ops)
        kinds_n, known = int(kind.max(initial=-1)) + 1, edges.ops.place >= 0
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
    edges: Edges, links: Links, follows: Bools, in_call: Bools, seen: _Lags, kind: Kinds
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
