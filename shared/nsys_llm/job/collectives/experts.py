"""Exchanges of tokens with experts, and in which of them ranks wait for uneven experts. Pure.

An instance is a dispatch and the combine after it. The rule stands in `docs/comm_stats.md`; its
conditions have to hold at the pace of each member, too: a slow GPU takes longer for all else as
well, in the median exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.lanes import EXCHANGES
from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.matched import Device, MatchedCollectives, meets_and_leaves
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

#: Longest over mean from which experts are uneven; this project.
UNEVEN: Final = 1.1
_NAMED: Final = ("dispatch", "combine")
#: Part of how late the last member comes that its experts explain: 1 / 2.
_EXPLAINS: Final = 2
#: Sends and receives of fewer members are messages.
_LEAST_MEMBERS: Final = 3


@dataclass(frozen=True)
class Exchanges:
    """Exchanges of a group, in order of time; arrays of shape (exchanges,) or as they say.

    Attributes:
        number: Of the sequence of each, in `MatchedCollectives.sequences`.
        last_start_ns: When the last member came, the common clock.
        waits_ns: Shape (members, exchanges), how long each waits for the last one.
        work_ns: Shape (2, 2, members, exchanges), see `LaneRows.work_ns`.
    """

    number: IntArray
    row: IntArray
    last_start_ns: IntArray
    operation: npt.NDArray[Any]
    waits_ns: IntArray
    work_ns: IntArray


@dataclass(frozen=True)
class ExpertGroup:
    """Devices that exchange tokens with experts.

    Attributes:
        owners: By position in `MatchedCollectives.devices`, ascending.
        waited_ns: Shape (exchanges,), how long all members together wait for experts.
        dispatches: Shape (instances,), which exchanges; the combine of each follows it.
        compute_ns: Shape (members, instances), from the end of a dispatch to the combine's begin.
    """

    owners: tuple[int, ...]
    exchanges: Exchanges
    waited_ns: IntArray
    dispatches: IntArray
    compute_ns: IntArray


def find_experts(collectives: MatchedCollectives) -> list[ExpertGroup]:
    """Return the groups that exchange tokens with experts, in the order of their devices."""
    numbers: dict[tuple[tuple[int, ...], bool], list[int]] = {}
    for number, sequence in enumerate(collectives.sequences):
        is_message, owners = sequence.operation == SEND_RECV, tuple(sorted(sequence.owners))
        few = is_message and len(owners) < _LEAST_MEMBERS
        is_sure = sequence.confidence != LOW_CONFIDENCE
        if sequence.operation in EXCHANGES and is_sure and not few:
            numbers.setdefault((owners, is_message), []).append(number)
    return [
        _group(collectives, owners, some)
        for (owners, _), some in sorted(numbers.items())
        if all(runs_experts(collectives.devices[owner]) for owner in owners)
    ]


def runs_experts(device: Device) -> bool:
    """Return whether a device that exchanges tokens is of a rank that runs kernels of experts."""
    return any(lane.work_ns.size for lane in device.lanes)


def waits_for_experts(collectives: MatchedCollectives) -> dict[int, npt.NDArray[np.bool_]]:
    """Return in which collectives members wait for experts, by the identity of sequences."""
    waits = {}
    for group in find_experts(collectives):
        exchanges = group.exchanges
        for number in np.unique(exchanges.number).tolist():
            sequence = collectives.sequences[number]
            rows = exchanges.row[(exchanges.number == number) & (group.waited_ns > 0)]
            waits[id(sequence)] = np.isin(np.arange(len(sequence)), rows)
    return waits


def _group(
    collectives: MatchedCollectives, owners: tuple[int, ...], numbers: Sequence[int]
) -> ExpertGroup:
    parts = [_exchanges(collectives, owners, number) for number in numbers]
    order = np.argsort(np.concatenate([part.last_start_ns for part in parts]), kind="stable")
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    every = Exchanges(*(np.concatenate(some, axis=-1)[..., order] for some in columns))
    begin_ns, end_ns = every.work_ns.swapaxes(0, 1)
    compute_ns, expert_ns = begin_ns[..., 1:] - end_ns[..., :-1]
    dispatches = _dispatches(every.operation, expert_ns)
    since_ns = np.diff(begin_ns, prepend=begin_ns[..., :1])
    # Up to dispatches alone: what else runs between one and its combine may follow tokens, too.
    others_ns = np.delete(since_ns[0] - since_ns[1], dispatches + 1, axis=1)
    compute_ns = compute_ns[:, dispatches]
    waited_ns = every.waits_ns.sum(axis=0)
    waited_ns[~np.isin(np.arange(order.size), [dispatches, dispatches + 1])] = 0
    for each in (1.0, _pace(others_ns)):
        times = compute_ns / each
        is_uneven = times.max(axis=0).sum() >= UNEVEN * times.mean(axis=0).sum()
        waited_ns[~(is_uneven & _explained(every.waits_ns, since_ns[1] / each))] = 0
    return ExpertGroup(owners, every, waited_ns, dispatches, compute_ns)


def _pace(others_ns: IntArray) -> npt.NDArray[np.float64]:
    """Return how long each member takes for what all do, in shares of the mean; shape (members, 1).

    Args:
        others_ns: Shape (members, exchanges), what is no expert kernel since the exchange before.
    """
    shared_ns = others_ns[:, others_ns.min(axis=0) > 0]
    if not shared_ns.size:
        return np.ones((len(others_ns), 1))
    return np.asarray(np.median(shared_ns / shared_ns.mean(axis=0), axis=1, keepdims=True))


def _exchanges(collectives: MatchedCollectives, owners: tuple[int, ...], number: int) -> Exchanges:
    sequence = collectives.sequences[number]
    row = np.flatnonzero(sequence.waits.met)
    waits_ns, work_ns = [], []
    for owner in owners:
        begin_ns, meet_ns, leave_ns = meets_and_leaves(sequence, owner)
        waits_ns.append((meet_ns - begin_ns)[row])
        lanes = [lane for lane in collectives.devices[owner].lanes if lane.work_ns.size]
        ends_ns = np.concatenate([lane.end_ns for lane in lanes])
        by_end = np.argsort(ends_ns, kind="stable")
        at = by_end[np.searchsorted(ends_ns[by_end], leave_ns[row])]
        work_ns.append(np.concatenate([lane.work_ns for lane in lanes], axis=-1)[..., at])
    return Exchanges(
        np.full(row.size, number),
        row,
        sequence.waits.last_start_ns[row],
        np.full(row.size, sequence.operation, dtype=object),
        np.stack(waits_ns),
        np.stack(work_ns, axis=2),
    )


def _explained(waits_ns: IntArray, expert_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return in which exchanges experts explain how late the last member comes."""
    last = waits_ns.argmin(axis=0)[None]
    more_ns = np.take_along_axis(expert_ns, last, axis=0)[0] - expert_ns.mean(axis=0)
    # The last one comes later than the mean by what the mean one waits.
    return np.asarray(_EXPLAINS * more_ns >= waits_ns.mean(axis=0))


def _dispatches(operation: npt.NDArray[Any], expert_ns: IntArray) -> IntArray:
    """Return the positions of dispatches; the combine of each follows.

    Names tell them, or which of two ways to pair them holds more expert work: what chooses experts
    runs before a dispatch, and is of experts too.

    Args:
        expert_ns: Shape (members, exchanges - 1), expert kernels from each to the next.
    """
    pairs = expert_ns.min(axis=0) > 0
    first, second = operation[:-1], operation[1:]
    named = pairs & (first == _NAMED[0]) & (second == _NAMED[1])
    if named.any():
        return np.flatnonzero(named)
    pairs &= ~(np.isin(first, _NAMED) | np.isin(second, _NAMED))
    rows = np.flatnonzero(pairs)
    ways = rows[rows % 2 == 0], rows[rows % 2 == 1]
    return max(ways, key=lambda way: int(expert_ns[:, way].sum()))
