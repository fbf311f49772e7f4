"""Which ranks are stages of a pipeline: decided here, for all recipes. Pure.

A stage waits for its neighbors by schedule: while the pipeline fills, while it drains, and for what
is computed on its behalf elsewhere. Such waiting is nobody's fault.

Facts that stand together tell a pipeline. Devices send and receive in pairs whose programs differ:
between two transfers they do not launch the same, as ranks do that exchange data with both
neighbors in a ring (context parallelism) or with all (experts). The pairs form a line, or a ring
where stages are interleaved. Down a line of three stages or more each pair begins later and ends
earlier; two stages compute in turn. Lines whose stages have collectives in common are one pipeline,
and a stage is all of its devices at one place: with tensor and context parallelism several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.matched import Device, MatchedCollectives, Sequenced
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

#: Between two transfers it is one device's turn if it launches so many times as many kernels as the
#: other, and more by this part of what a device launches where it launches most (the 90th
#: percentile); ours. A forward pass is a third of a microbatch.
_TIMES: Final = 2
_LEAST_PART: Final = 0.25
_MOST_PCT: Final = 90
#: A schedule repeats: so much of the turns is the same after one period as before, of these at
#: least; ours. Experts that are launched one by one, as tokens need them, take turns by chance, and
#: a quarter of theirs is.
_SAME: Final = 0.45
_LEAST_REPEATED: Final = 5
#: Each of the two has to do so at least so often.
_LEAST_TURNS: Final = 2
#: Stages share a model: the turns of one have this part of the kernels of the other's, or more.
_BALANCED: Final = 0.25
_LEAST_OF_A_CHAIN: Final = 3
#: Two ranks are stages if so much of their kernels is launched in turn, in percent; with 16
#: microbatches a step it is 8; ours.
_TURNS_PCT: Final = 4.0
#: A pair begins later and ends earlier than the one before by this part of the mean time between
#: its transfers, at least; ours. A stage takes as long as a computation, so a third and more.
_STAGGER: Final = 0.1
#: Two devices run one program if, of transfers, one is never ahead of the other by more than this
#: part of the kernels between two transfers than it is otherwise; ours. Stages are by one or more.
_SAME_PROGRAM: Final = 0.5
#: The transfers that tell, in percentiles: where forward and backward launch alike, stages differ
#: only where one fills the pipeline: once each way in the 2 transfers of each of 25 microbatches.
_MOST_OF_ALL: Final = (2, 98)
#: Of the transfers of an end of a line, the most that is not matched: of a real end what the
#: capture cuts, of a stage with another neighbor half; ours.
_MOST_UNMATCHED: Final = 1 / 3
#: Fewer ranks, or fewer sends and receives of one, show no chain by their numbers.
_LEAST_ENDS: Final = 3
_LEAST_TRANSFERS: Final = 8
#: Part of the sends and receives whose partners are known at most where nobody knows them.
_MOST_PLACED: Final = 0.2
#: The ends of a chain send and receive less often than the others by this, in percent, at least: 12
#: in an interleaved schedule of 4 chunks a rank. Captures of equals differ by a call or two.
_FEWER_PCT: Final = 5

_Pairs = Mapping[tuple[int, ...], Sequence[Sequenced]]
_Line = tuple[int, ...]


def turns_pct(pairs: Sequence[Sequenced], devices: Sequence[Device]) -> float:
    """Return the share of the kernels of two devices that are launched in turn, in percent.

    Returns:
        100 where one computes while the other never does, 0 for equals.
    """
    # As the programs have them: transfers under way at once end in any order.
    left, right = np.diff(np.maximum.accumulate(launched_n(pairs, devices), axis=1))
    more, most = np.abs(left - right), np.maximum(left, right)
    least = max(_LEAST_PART * float(np.percentile(most, _MOST_PCT)), 1.0) if most.size else 1.0
    lopsided = (more >= least) & (most >= _TIMES * np.minimum(left, right))
    alone = [lopsided & (left > right), lopsided & (right > left)]
    ahead_n = [int(more[item].sum()) for item in alone]
    often = min(int(item.sum()) for item in alone) >= _LEAST_TURNS
    if (
        not often
        or not _is_repeated(left, right, lopsided)
        or min(ahead_n) < _BALANCED * max(ahead_n)
    ):
        return 0.0
    return 100.0 * 2 * min(ahead_n) / max(int((left + right).sum()), 1)


def launched_n(pairs: Sequence[Sequenced], devices: Sequence[Device]) -> IntArray:
    """Return how many kernels two devices had launched before each transfer; shape (2, n)."""
    work = np.stack(
        [np.concatenate([before_n(item, devices, place) for item in pairs]) for place in (0, 1)]
    )
    return work[:, np.lexsort((work[0], work.sum(axis=0)))]


def _is_repeated(left: IntArray, right: IntArray, turn: npt.NDArray[np.bool_]) -> bool:
    """Return whether the turns are the same again some number of transfers later, throughout."""
    for period in range(1, left.size // 2 + 1):
        again = (left[period:] == left[:-period]) & (right[period:] == right[:-period])
        compared = turn[:-period]
        if compared.sum() < _LEAST_REPEATED:
            return False
        if again[compared].mean() >= _SAME:
            return True
    return False


def before_n(sequence: Sequenced, devices: Sequence[Device], place: int) -> IntArray:
    """Return how many kernels a device had launched before each transfer."""
    lanes = [lane for lane in devices[sequence.owners[place]].lanes if lane.operation == SEND_RECV]
    starts = np.concatenate([lane.start_ns for lane in lanes])
    before_n = np.concatenate([lane.before_n for lane in lanes])
    order = np.argsort(starts, kind="stable")
    start_ns = sequence.start_ns[place] + sequence.ahead_ns[place]
    return before_n[order][np.searchsorted(starts[order], start_ns)]


@dataclass(frozen=True)
class Stages:
    """All pipelines of a job.

    Attributes:
        pipelines: In the order of their first devices: devices of each stage, by position in
            `MatchedCollectives.devices`, in the order of the schedule; all have as many.
        staged: The transfers in which coming last blames nobody, by the identity of their
            sequences: those of all pipelines, of parts of them, and of chains that a capture
            without warm-up and cool-down shows.
        stage_of: Stage of each device of a pipeline; those of all pipelines have distinct numbers.
        closing: Collectives of several stages, likewise: until all have come, the pipeline drains.
        parts: Devices of a part of a pipeline: some of its transfers are not matched, or a rank of
            it is not traced, so which stage each is, and of how many, is not known.
    """

    pipelines: tuple[tuple[tuple[int, ...], ...], ...]
    staged: frozenset[int]
    stage_of: Mapping[int, int]
    closing: frozenset[int]
    parts: frozenset[int]

    def apart(self, device: int) -> int | None:
        """Return a number that devices share which may do the same: their stage's, or None.

        Where parts of pipelines are all that is known, one without a stage may be of any: it has a
        number of its own.
        """
        return self.stage_of.get(device, -1 - device if self.parts else None)


def find_stages(collectives: MatchedCollectives) -> Stages:
    """Return the pipelines of a job."""
    pairs = _stage_pairs(collectives)
    lines: list[_Line] = []
    inside: set[int] = set()
    parts: set[int] = set()
    for line, closed in _lines(pairs):
        if len(line) == 2:
            down = int(turns_pct(pairs[line], collectives.devices) >= _TURNS_PCT)
        else:
            down = _staggered(line, pairs)
        if down and not closed and _goes_on(line, collectives):
            parts |= set(line)
        elif down:
            lines.append(line[::down])
        elif len(line) > 2 and not closed:
            inside |= set(line)
    pipelines = sorted(
        tuple(tuple(sorted(devices)) for devices in zip(*group, strict=True))
        for group in _joined_lines(lines, collectives, pairs)
    )
    inside |= parts.union(*lines)
    staged = [item for ends, some in pairs.items() if inside.issuperset(ends) for item in some]
    numbered = [devices for pipeline in pipelines for devices in pipeline]
    stage_of = {device: number for number, devices in enumerate(numbered) for device in devices}
    closing = [
        sequence
        for sequence in collectives.sequences
        if len({stage_of[device] for device in sequence.owners if device in stage_of}) > 1
    ]
    staged_ids, closing_ids = (frozenset(map(id, some)) for some in (staged, closing))
    return Stages(tuple(pipelines), staged_ids, stage_of, closing_ids, frozenset(parts))


def _stage_pairs(collectives: MatchedCollectives) -> _Pairs:
    """Return the sends and receives of pairs that do not run one program."""
    pairs: dict[tuple[int, ...], list[Sequenced]] = {}
    for sequence in collectives.sequences:
        if sequence.operation == SEND_RECV and len(sequence.owners) == 2 and len(sequence):
            pairs.setdefault(tuple(sorted(sequence.owners)), []).append(sequence)
    return {
        ends: some
        for ends, some in sorted(pairs.items())
        if not _run_one_program(some, collectives)
    }


def _run_one_program(pair: Sequence[Sequenced], collectives: MatchedCollectives) -> bool:
    left, right = launched_n(pair, collectives.devices)
    if left.size < 2:
        return False
    usual_n = (left[-1] - left[0] + right[-1] - right[0]) / (2 * (left.size - 1))
    low, high = np.percentile(left - right, _MOST_OF_ALL)
    return bool(high - low < _SAME_PROGRAM * usual_n)


def _lines(pairs: _Pairs) -> list[tuple[_Line, bool]]:
    """Return sets of devices of which each has two neighbors at most, in order, and if closed."""
    near: dict[int, set[int]] = {}
    for left, right in pairs:
        near.setdefault(left, set()).add(right)
        near.setdefault(right, set()).add(left)
    remaining, lines = set(near), []
    while remaining:
        ends = [device for device in remaining if len(near[device]) == 1] or list(remaining)
        every = _reached(min(ends), near)
        remaining -= every
        walk, ahead = [], [min(every & set(ends))]
        while ahead:
            walk.append(ahead[0])
            ahead = sorted(near[walk[-1]] - set(walk))
        if len(walk) == len(every) and all(len(near[device]) <= 2 for device in every):
            closed = len(walk) >= _LEAST_OF_A_CHAIN and walk[0] in near[walk[-1]]
            lines.append((tuple(walk), closed))
    return lines


def _reached(device: int, near: Mapping[int, set[int]]) -> set[int]:
    """Return all devices that are linked with one."""
    reached, ahead = {device}, [device]
    while ahead:
        new = near[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached


def _staggered(line: _Line, pairs: _Pairs) -> int:
    """Return 1 if each pair begins later and ends earlier than the one before, -1 if reversed."""
    ends = [
        np.concatenate([item.waits.last_end_ns for item in pairs[min(two), max(two)]])
        for two in pairwise(line)
    ]
    first, last = (np.array([side(some) for some in ends]) for side in (np.min, np.max))
    usual_ns = np.median((last - first) / [some.size for some in ends])
    begins, stops = np.diff(first), np.diff(last)
    least_ns = _STAGGER * float(usual_ns)
    if (begins >= least_ns).all() and (stops <= -least_ns).all():
        return 1
    return -1 if (begins <= -least_ns).all() and (stops >= least_ns).all() else 0


def _goes_on(line: _Line, collectives: MatchedCollectives) -> bool:
    """Return whether an end of a line has another neighbor: transfers that are not matched."""
    for end in (line[0], line[-1]):
        lanes = collectives.devices[end].lanes
        every_n = sum(lane.start_ns.size for lane in lanes if lane.operation == SEND_RECV)
        matched_n = sum(
            len(sequence)
            for sequence in collectives.sequences
            if sequence.operation == SEND_RECV and end in sequence.owners
        )
        if every_n - matched_n > _MOST_UNMATCHED * every_n:
            return True
    return False


def _joined_lines(
    lines: Sequence[_Line], collectives: MatchedCollectives, pairs: _Pairs
) -> list[list[_Line]]:
    """Return lines whose stages have collectives in common, each turned as the first of its group.

    A collective that has two stages of one line is of the whole pipeline, and joins nothing.
    """
    place = {
        device: (at, spot) for at, line in enumerate(lines) for spot, device in enumerate(line)
    }
    links: dict[int, set[tuple[int, bool]]] = {at: set() for at in range(len(lines))}
    for sequence in collectives.sequences:
        members = [place[device] for device in sequence.owners if device in place]
        if tuple(sorted(sequence.owners)) in pairs or len({at for at, _ in members}) < len(members):
            continue
        for (one, spot), (other, there) in pairwise(members):
            long = len(lines[one])
            if long == len(lines[other]) and there in (spot, long - 1 - spot):
                turned = there != spot
                links[one].add((other, turned))
                links[other].add((one, turned))
    groups, left = [], set(links)
    while left:
        first = min(left)
        turned_of, ahead = {first: False}, [first]
        while ahead:
            at = ahead.pop()
            for other, turned in sorted(links[at]):
                if other not in turned_of:
                    turned_of[other] = turned_of[at] != turned
                    ahead.append(other)
        left -= turned_of.keys()
        groups.append(
            [lines[at][:: -1 if turned else 1] for at, turned in sorted(turned_of.items())]
        )
    return groups


def may_be_stages(transfers_n: Sequence[int]) -> bool:
    """Return whether ranks may be stages, by what a recipe sees that matches nothing.

    Ranks that exchange data with all others send and receive equally often. In a chain of stages
    the first and the last have one neighbor and the others two. Two ranks may always be stages.

    Args:
        transfers_n: Kernels of each rank that send or receive.
    """
    if min(transfers_n, default=0) < _LEAST_TRANSFERS:
        return False
    if len(transfers_n) < _LEAST_ENDS:
        return len(transfers_n) == 2
    least_n, most_n = min(transfers_n), max(transfers_n)
    if 100 * least_n > (100 - _FEWER_PCT) * most_n:
        return False
    ends_n = sum(2 * n <= least_n + most_n for n in transfers_n)
    # The others have two neighbors each, so there are at most two ends to each of them.
    return ends_n <= 2 * (len(transfers_n) - ends_n)


def are_unplaced(collectives: MatchedCollectives, stages: Stages) -> bool:
    """Tell whether devices send and receive and nobody knows with whom.

    So little of that is matched, or for sure among devices that may be stages: those are in
    lockstep, and any pair of them fits as well.
    """
    every = [
        sum(lane.start_ns.size for lane in device.lanes if lane.operation == SEND_RECV)
        for device in collectives.devices
    ]
    if stages.pipelines or len(every) < _LEAST_ENDS or min(every) < _LEAST_TRANSFERS:
        return False
    some = [item for item in collectives.sequences if item.operation == SEND_RECV]
    matched_n = sum(len(item) * len(item.owners) for item in some)
    sure_n = sum(len(item) * len(item.owners) for item in some if item.confidence != LOW_CONFIDENCE)
    most_n = _MOST_PLACED * sum(every)
    return matched_n <= most_n or (sure_n <= most_n and may_be_stages(every))
