"""Which transfers are matched before others: ids, programs, streams, what is left. Pure numpy.

Context parallelism exchanges keys and values on one stream of all ranks, beside the transfers
between stages on others, with kernels of one name. In one track neither is a sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.lanes import LaneRows
from nsys_llm.job.collectives.matching import Lane, Matched
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

#: Share of each member's transfers that a sequence made of them has to hold, in percent.
WHOLE_PCT: Final = 90


def common_streams(lanes: Sequence[Lane]) -> tuple[list[list[Lane]], bool]:
    """Return the lanes of each stream that all devices have, and whether all have others, too.

    Of what stages exchange the first has no stream to receive on, and the last none to send, unless
    both directions share one. What no device has apart from the others tells nothing.
    """
    streams: dict[int, set[int]] = {}
    for lane in lanes:
        streams.setdefault(lane.owner, set()).add(lane.stream)
    shared = set.intersection(*streams.values())
    have_others = all(len(some) > len(shared) for some in streams.values())
    if not have_others and (len(shared) < 2 or any(some != shared for some in streams.values())):
        return [], False
    by_stream = [[lane for lane in lanes if lane.stream == stream] for stream in sorted(shared)]
    return by_stream, have_others


def by_communicator(lanes: Sequence[Lane]) -> list[list[Lane]]:
    """Return the lanes of each communicator; none where a call does not tell its id."""
    if not all(lane.comm.size for lane in lanes):
        return []
    owners: dict[int, set[int]] = {}
    for lane in lanes:
        for comm in np.unique(lane.comm).tolist():
            owners.setdefault(comm, set()).add(lane.owner)
    if NULL_INT in owners or min(map(len, owners.values())) < 2:
        return []
    parts = {comm: [(lane, lane.comm == comm) for lane in lanes] for comm in sorted(owners)}
    return [[lane.only(kept) for lane, kept in some if kept.any()] for some in parts.values()]


def is_all_of(lanes: Sequence[Lane], matched: Sequence[Matched]) -> bool:
    """Return whether pairs of devices hold nearly all transfers of each."""
    pairs = [item for item in matched if len(item.lanes) == 2]
    held: dict[int, int] = {}
    for lane, rows in (both for item in pairs for both in zip(item.lanes, item.rows, strict=True)):
        held[lane.owner] = held.get(lane.owner, 0) + rows.size
    every_n: dict[int, int] = {}
    for lane in lanes:
        every_n[lane.owner] = every_n.get(lane.owner, 0) + len(lane.track)
    return len(pairs) == len(matched) and all(
        100 * held.get(owner, 0) >= WHOLE_PCT * n for owner, n in every_n.items()
    )


def without(lanes: Sequence[Lane], matched: Sequence[Matched]) -> list[Lane]:
    """Return lanes without the transfers that are matched; none that is empty then."""
    rows_of: dict[int, list[IntArray]] = {}
    for item in matched:
        for lane, rows in zip(item.lanes, item.rows, strict=True):
            rows_of.setdefault(lane.owner, []).append(rows)
    left = []
    ordered = sorted(lanes, key=lambda lane: (lane.owner, lane.kernel, lane.stream))
    for owner, group in groupby(ordered, key=lambda lane: lane.owner):
        owner_lanes = list(group)
        starts = np.concatenate([lane.track.start_ns for lane in owner_lanes])
        ends = np.concatenate([lane.track.end_ns for lane in owner_lanes])
        keep = np.ones(ends.size, dtype=bool)
        order = np.lexsort((starts, ends))
        keep[order[joined(rows_of.get(owner, []))]] = False
        sizes = np.cumsum([len(lane.track) for lane in owner_lanes])[:-1]
        for lane, some in zip(owner_lanes, np.split(keep, sizes), strict=True):
            if some.any():
                left.append(lane.only(some))
    return left


def doubted(
    matched: Sequence[Matched], kinds: Mapping[int, int], transfers: Sequence[Lane]
) -> list[Matched]:
    """Doubt pairs of one kind that do not have equally many messages, or that some ranks lack.

    Messages to another stage and to a rank of the same one may be taken for each other, so all
    pairs of their ranks are doubted. By what captures of one program differ, their pairs may, too.
    """
    pairs = [item for item in matched if len(item.lanes) == 2 and item.rows[0].size]
    kind_of = {id(item): frozenset(kinds[lane.owner] for lane in item.lanes) for item in matched}
    every_n: Counter[int] = Counter()
    for lane in transfers:
        every_n[lane.owner] += len(lane.track)
    totals: dict[int, list[int]] = {}
    for owner, n in every_n.items():
        totals.setdefault(kinds[owner], []).append(n)
    cut_n = max(max(some) - min(some) for some in totals.values())
    counts: dict[frozenset[int], Counter[frozenset[int]]] = {}
    for item in pairs:
        of_kind = counts.setdefault(kind_of[id(item)], Counter())
        of_kind[frozenset(lane.owner for lane in item.lanes)] += item.rows[0].size
    for kind, of_kind in counts.items():
        lone = {owner for owner in every_n if kinds[owner] in kind}.difference(*of_kind)
        of_kind.update({frozenset([owner]): 0 for owner in lone})
    unlike = [n for n in counts.values() if max(n.values()) - min(n.values()) > cut_n]
    doubtful = {owner for of_kind in unlike for pair in of_kind for owner in pair}
    return [
        replace(item, is_doubted=any(lane.owner in doubtful for lane in item.lanes))
        for item in matched
    ]


def programs(devices: Sequence[Sequence[LaneRows]]) -> dict[int, int]:
    """Return the number of the program of each device that sends or receives, by position.

    Ranks of one stage of a pipeline launch the same kernels between two transfers, however fast
    each is; those of the next stage do not, at the turns of the schedule. How many were launched is
    known by the order of the calls, whatever the GPUs did meanwhile. Two captures of one program
    may begin or end elsewhere: what both have decides.
    """
    firsts: list[IntArray] = []
    result = {}
    for place, lanes in enumerate(devices):
        before_n = joined([lane.before_n for lane in lanes if lane.operation == SEND_RECV])
        if before_n.size:
            ordered = np.sort(before_n)
            between_n: IntArray = ordered[1:] - ordered[:-1]
            same = (at for at, first in enumerate(firsts) if _is_same(first, between_n))
            result[place] = next(same, len(firsts))
            if result[place] == len(firsts):
                firsts.append(between_n)
    return result


def _is_same(one: IntArray, other: IntArray) -> bool:
    n = min(one.size, other.size)
    return np.array_equal(one[:n], other[:n]) or np.array_equal(
        one[one.size - n :], other[other.size - n :]
    )
