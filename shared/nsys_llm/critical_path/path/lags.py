"""How long operations usually take to start, and which of their prerequisites held each back.

The prerequisite that finished last need not be the one that an operation waited for: a launch takes
longer to reach the device than a stream takes from one operation to the next. So each counts as of
its end and the usual lag of its kind, but not later than the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.classes import (
    BY_CALL,
    BY_EVENT,
    BY_LAUNCH,
    BY_ROOM,
    BY_STREAM,
    EDGE_NAMES,
    EVENT_INFERRED,
    GRAPH_INFERRED,
)
from nsys_llm.critical_path.path.ops import Bools, PathOps
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray

#: Before every time of a capture.
NEVER: Final = int(np.iinfo(np.int64).min) // 2
#: Lags up to so many times the usual one, and at least this one, need no further explanation.
_USUAL_TIMES: Final = 3
_LEAST_LIMIT_NS: Final = 3_000
#: A launch that was done so many times its usual lag before something else did not matter.
_LONG_AGO_TIMES: Final = 2
#: The lag of a stream that no operation shows: about the least on H100s. Ours.
_STREAM_LAG_NS: Final = 1_000
#: Edges that take as long as that of a stream.
_ON_DEVICE: Final = (BY_STREAM, BY_EVENT, EVENT_INFERRED, GRAPH_INFERRED, BY_ROOM)

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Lags:
    """Usual lags; of each device those of nodes of graphs apart, in all one kind of operations.

    Attributes:
        kind: Shape (operations,).
        usual_ns: Shape (edges, kinds), from the end of a prerequisite to the start, ns; 0 where
            none can be told.
        limit_ns: Shape (kinds,), up to which nothing further has to explain a start.
    """

    kind: npt.NDArray[np.int16]
    usual_ns: IntArray
    limit_ns: IntArray

    def of(self, edge: Codes, rows: IntArray | slice) -> IntArray:
        """Return the usual lags of some operations by an edge each, a new array."""
        place = edge.astype(np.int16)
        place *= self.limit_ns.size
        place += self.kind[rows]
        return self.usual_ns.reshape(-1).take(place)


@dataclass
class Latest:
    """The prerequisite that held each operation back, of those known so far; changed in place.

    Attributes:
        node: Shape (operations,); -1 for none.
        at_ns: Shape (operations,), when it was done; `NEVER` for none.
        edge: Shape (operations,).
    """

    node: Positions
    at_ns: IntArray
    edge: Codes

    def allows_ns(self, ops: PathOps, lags: Lags, rows: IntArray | slice) -> IntArray:
        """Return when operations could usually start by it, but not later than they did."""
        allowed = lags.of(self.edge[rows], rows)
        allowed += self.at_ns[rows]
        return np.minimum(allowed, ops.start_ns[rows], out=allowed)

    def offer(
        self,
        ops: PathOps,
        lags: Lags,
        rows: IntArray | slice,
        node: IntArray | Positions,
        at_ns: IntArray,
        edge: int,
    ) -> None:
        """Take a prerequisite where it allowed a later start than what is there.

        Of several that explain a start, the one that finished last counts.
        """
        offered_ns = lags.usual_ns[edge][lags.kind[rows]]
        offered_ns += at_ns
        np.minimum(offered_ns, ops.start_ns[rows], out=offered_ns)
        offered_ns -= self.allows_ns(ops, lags, rows)
        later = offered_ns > 0
        later |= (offered_ns == 0) & (at_ns > self.at_ns[rows])
        later &= node >= 0
        chosen = np.flatnonzero(later)
        rows = chosen if isinstance(rows, slice) else rows[chosen]
        self.node[rows], self.at_ns[rows], self.edge[rows] = node[chosen], at_ns[chosen], edge


def usual_lags(ops: PathOps, launched: Latest, called_ns: IntArray, before_ns: IntArray) -> Lags:
    """Return the usual lags, each by operations that nothing else can have held back.

    Of a launch, those before which nothing ended from the begin of the call on; of a stream, those
    before which nothing ended but the operation ahead, and whose launch had returned long before
    that: where in a call it is done is not recorded.

    Args:
        called_ns: Shape (operations,), when the call that launched each began.
        before_ns: Shape (operations,), when what stood before each on its stream ended; `NEVER`
            for nothing.
    """
    devices, device = distinct_codes(ops.device_ids)
    kind = 2 * device.astype(np.int16)[ops.stream] + ops.node
    kinds_n = 2 * devices.size
    usual_ns = np.zeros((len(EDGE_NAMES), kinds_n), dtype=np.int64)
    # A stable sort is fast where most is sorted, as the operations of a stream are.
    ended = np.sort(ops.end_ns, kind="stable") if ops.stream_ids.size > 1 else None
    for edge in (BY_LAUNCH, BY_CALL):
        some = np.flatnonzero((before_ns <= called_ns) & (launched.edge == edge))
        some = some[_none_ended(ended, called_ns[some], ops.start_ns[some])]
        lag_ns = ops.start_ns[some] - launched.at_ns[some]
        usual_ns[edge] = medians(lag_ns, kind[some], kinds_n, 0, apart=True)
    long_ns = (_LONG_AGO_TIMES * usual_ns[BY_LAUNCH])[kind]
    long_ns += launched.at_ns
    queued = (launched.edge == BY_LAUNCH) & (long_ns <= before_ns)
    queued &= before_ns <= ops.start_ns
    del long_ns
    some = np.flatnonzero(queued)
    some = some[_none_ended(ended, before_ns[some], ops.start_ns[some])]
    stream_ns = medians(ops.start_ns[some] - before_ns[some], kind[some], kinds_n, 0, apart=True)
    plain_ns = np.repeat(stream_ns[::2], 2)
    stream_ns = np.where(stream_ns > 0, stream_ns, np.where(plain_ns > 0, plain_ns, _STREAM_LAG_NS))
    usual_ns[list(_ON_DEVICE)] = stream_ns
    return Lags(kind, usual_ns, np.maximum(_USUAL_TIMES * stream_ns, _LEAST_LIMIT_NS))


def _none_ended(ended: IntArray | None, after_ns: IntArray, until_ns: IntArray) -> Bools:
    """Return between which instants no operation ended.

    Args:
        ended: Ends of all operations, sorted; None for one stream, where that is known already.
        after_ns: Shape (k,); an end at that instant does not count.
        until_ns: Shape (k,); one at this does.
    """
    if ended is None:
        return np.ones(after_ns.shape, dtype=bool)
    sides = (np.searchsorted(ended, at_ns, side="right") for at_ns in (after_ns, until_ns))
    return np.equal(*sides)


def medians(
    lag: IntArray, kind: npt.NDArray[Any], kinds_n: int, default_ns: int, *, apart: bool = False
) -> IntArray:
    """Return the median of each kind; where it has none that of all, unless kinds are apart."""
    medians = np.full(kinds_n, lower_median(lag) if lag.size and not apart else default_ns)
    for code in np.flatnonzero(np.bincount(kind)).tolist():
        medians[code] = lower_median(lag[kind == code])
    return medians
