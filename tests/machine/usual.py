"""Usual lags of a simulated job, one operation after the other: what a reader of profiles can know.

A launch or a stream takes what it took where nothing else can have held the operation back. Which
of several prerequisites did is told by them: the one with the latest end and usual lag.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Final

from machine.outcome import Operation, Outcome, Prerequisite

#: What lags are told apart by: what took them, the device, and whether of a node of a graph.
LagKey = tuple[str, int, bool]

#: Where no operation shows it.
_STREAM_LAG_NS: Final = 1_000


@lru_cache(maxsize=64)
def usual_lags(outcome: Outcome, rank: int) -> dict[LagKey, int]:
    """Return the usual lags of a rank, ns: of `launch`, `call` (from its begin) and `stream`."""
    operations = outcome.operations[rank]
    ends = sorted(op.end for op in operations)
    lags: dict[LagKey, int] = {}
    samples: dict[LagKey, list[int]] = {}
    for op in operations:
        ahead = _ahead(op)
        if (ahead is None or ahead <= op.call.start) and _quiet(ends, op.call.start, op.start):
            samples.setdefault(_launch_key(op), []).append(op.start - op.launch_ns)
    lags |= {key: _middle(values) for key, values in samples.items()}
    samples = {}
    for op in operations:
        ahead = _ahead(op)
        if ahead is None or op.start < op.call.end:
            continue  # where in a call a launch is done, profiles do not tell
        long_ns = 2 * lags.get(_launch_key(op), 0)
        if op.launch_ns + long_ns <= ahead and _quiet(ends, ahead, op.start):
            samples.setdefault(_stream_key(op), []).append(op.start - ahead)
    return lags | {key: _middle(values) for key, values in samples.items()}


def usual_activator(outcome: Outcome, op: Operation) -> Prerequisite:
    """Return the prerequisite that usually would have let an operation start last."""
    lags = usual_lags(outcome, op.rank)
    _, device, node = _stream_key(op)
    plain_ns = lags.get(("stream", device, False), 0) or _STREAM_LAG_NS
    stream_ns = lags.get(("stream", device, node), 0) or plain_ns

    def allows(need: Prerequisite) -> tuple[int, int]:
        lag_ns = lags.get(_launch_key(op), 0) if need.kind == "launch" else stream_ns
        return min(need.end + lag_ns, op.start), need.end

    return max(op.prerequisites(), key=allows)


def _ahead(op: Operation) -> int | None:
    """Return when all that its stream ran before had ended."""
    return max((need.end for kind, need in op.needs if kind == "stream"), default=None)


def _quiet(ends: list[int], after: int, until: int) -> bool:
    """Tell whether nothing ended between two instants; at the second counts."""
    return bisect_right(ends, after) == bisect_right(ends, until)


def _launch_key(op: Operation) -> LagKey:
    return "launch" if op.start >= op.call.end else "call", op.device, op.node is not None


def _stream_key(op: Operation) -> LagKey:
    return "stream", op.device, op.node is not None


def _middle(values: list[int]) -> int:
    return sorted(values)[(len(values) - 1) // 2]
