"""How much of the communication class of each device is waiting, and how much transfer.

A device waits in a collective until the last rank has come (see `collectives.waits`) and transfers
from then until it leaves. Only time counts that the wall split gives to communication: what is
hidden behind computation costs nothing. Where a device waits in one collective and transfers in
another, it transfers. What is not matched for sure is neither, but for transfers between stages of
a pipeline: with tensor parallelism it may be the other rank of a stage in lockstep that one meets.
Waiting of a stage of a pipeline for another one is its bubble, in every collective to which a
device of another stage came last. Waiting for uneven experts is apart, too: in exchanges of tokens,
as `collectives.experts` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.experts import waits_for_experts
from nsys_llm.job.collectives.matched import MatchedCollectives, Sequenced, meets_and_leaves
from nsys_llm.job.collectives.stages import Stages, find_stages
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import (
    IntArray,
    intersect_intervals,
    subtract_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import (
    BUBBLE,
    COMMUNICATION,
    EXPERTS,
    NOT_MATCHED,
    TRANSFER,
    UNREAD,
    WAITING,
)
from nsys_llm.trace.wall import WallDetails, WallKey, Walls

_Bools = npt.NDArray[np.bool_]
#: Tells which collectives of a sequence count, shape (collectives,).
_Chooses = Callable[[Sequenced], _Bools | np.bool_]


def communication_details(
    collectives: MatchedCollectives, walls: Walls, *, unread: bool = False
) -> WallDetails:
    """Return waiting, transfer and the rest of each device; nothing where none is matched.

    Args:
        walls: Of all devices; one without `hidden` is not divided.
        unread: Whether ranks were not read: what is no waiting for others may be for these.
    """
    details: dict[WallKey, Mapping[str, Mapping[str, int]]] = {}
    stages, experts = find_stages(collectives), waits_for_experts(collectives)
    for owner, device in enumerate(collectives.devices):
        key = device.rank.key, device.device_id
        hidden = walls[key].hidden if key in walls else None
        if hidden is None:
            continue
        spans = communication_spans(collectives, owner, stages, experts)
        if not len(spans[TRANSFER]) and not unread:
            continue
        parts = {
            name: total_length_ns(subtract_intervals(some, hidden)) for name, some in spans.items()
        }
        rest_ns = walls[key].communication_ns - sum(parts.values())
        if unread:
            parts[UNREAD], rest_ns = parts.pop(TRANSFER) + rest_ns, 0
        details[key] = {COMMUNICATION: {**parts, NOT_MATCHED: rest_ns}}
    return details


def communication_spans(
    collectives: MatchedCollectives,
    owner: int,
    stages: Stages,
    experts: Mapping[int, _Bools] | None = None,
) -> dict[str, IntArray]:
    """Return when a device waits, transfers, and waits for another stage, in its report's clock.

    Args:
        owner: Which device: its position in `collectives.devices`.
        experts: See `waits_for_experts`; None where that is other waiting.

    Returns:
        By detail of the communication class; each of shape (n, 2), sorted, and all disjoint. Who
        waits for another stage and for others at once waits for the stage, then for experts.
    """
    sequences = collectives.sequences
    waiting, transfer = waiting_and_transfer(sequences, owner, stages.staged)
    spans = {WAITING: subtract_intervals(waiting, transfer), TRANSFER: transfer}
    reasons: dict[str, _Chooses] = {}
    if stages.staged:
        # Beside its messages a stage may transfer in what is not matched: then it does not wait.
        unsure = _unsure(sequences, owner, stages.staged)
        spans[WAITING] = subtract_intervals(spans[WAITING], unsure)
        reasons[BUBBLE] = lambda sequence: waits_for_stage(sequence, owner, stages)
    if experts:
        reasons[EXPERTS] = lambda sequence: experts.get(id(sequence), np.False_)
    for detail, chooses in reasons.items():
        some, _ = waiting_and_transfer(sequences, owner, stages.staged, chooses)
        spans[detail] = intersect_intervals(spans[WAITING], some)
        spans[WAITING] = subtract_intervals(spans[WAITING], spans[detail])
    return spans


def _unsure(sequences: Sequence[Sequenced], owner: int, staged: frozenset[int]) -> IntArray:
    """Return when a device is in collectives of low confidence, its report's clock."""
    spans = [np.empty((2, 0), dtype=np.int64)]
    for sequence in sequences:
        if owner in sequence.owners and _is_unsure(sequence, staged):
            spans.append(np.stack(meets_and_leaves(sequence, owner)[::2]))
    return union_intervals(*np.concatenate(spans, axis=1))


def _is_unsure(sequence: Sequenced, staged: frozenset[int]) -> bool:
    between_stages = sequence.operation == SEND_RECV and id(sequence) in staged
    return sequence.confidence == LOW_CONFIDENCE and not between_stages


def waiting_and_transfer(
    sequences: Sequence[Sequenced],
    owner: int,
    staged: frozenset[int] = frozenset(),
    chooses: _Chooses | None = None,
) -> tuple[IntArray, IntArray]:
    """Return when a device waits and when it transfers, in its report's clock.

    Args:
        staged: Of which transfers count with low confidence, too, see `Stages.staged`.
        chooses: Tells which collectives of a sequence count; None for all.

    Returns:
        Two unions, shape (n, 2); they overlap where it waits in a collective and transfers in
        another.
    """
    begins, meets, leaves = ([np.empty(0, dtype=np.int64)] for _ in range(3))
    for sequence in sequences:
        if owner not in sequence.owners or _is_unsure(sequence, staged):
            continue
        met = sequence.waits.met & (True if chooses is None else chooses(sequence))
        times = zip((begins, meets, leaves), meets_and_leaves(sequence, owner), strict=True)
        for parts, at_ns in times:
            parts.append(at_ns[met])
    begin_ns, meet_ns, leave_ns = map(np.concatenate, (begins, meets, leaves))
    return union_intervals(begin_ns, meet_ns), union_intervals(meet_ns, leave_ns)


def exposed_ns(
    waiting: IntArray, transfer: IntArray, exposed: IntArray, start_ns: IntArray
) -> tuple[IntArray, IntArray]:
    """Return how long a device only waits, and transfers, in each of some windows.

    Args:
        waiting: Shape (n, 2), see `waiting_and_transfer`; `transfer` likewise.
        exposed: Shape (m, 2), when nothing hides its communication; none crosses a window.
        start_ns: Shape (windows,), where each begins.
    """
    times = []
    for spans in (subtract_intervals(waiting, transfer), transfer):
        inside = intersect_intervals(spans, exposed)
        window = np.searchsorted(start_ns, inside[:, 0], side="right") - 1
        times.append(exact_sums(window, inside[:, 1] - inside[:, 0], start_ns.size))
    return times[0], times[1]


def waits_for_stage(sequence: Sequenced, owner: int, stages: Stages) -> _Bools:
    """Return to which collectives a device of another stage came last; shape (collectives,)."""
    if id(sequence) in stages.staged:
        return np.ones(len(sequence), dtype=bool)
    late = sequence.waits.late
    if sequence.by_length:
        lengths = [
            end - start for start, end in zip(sequence.start_ns, sequence.end_ns, strict=True)
        ]
        late = np.argmin(lengths, axis=0)
    none = len(stages.stage_of)
    stage = np.array([stages.stage_of.get(member, none) for member in sequence.owners])[late]
    return np.asarray((stage != none) & (stage != stages.stage_of.get(owner, none)))
