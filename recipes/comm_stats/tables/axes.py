"""The axis of parallelism of each group: as a layout says, or inferred from what the group does.

An axis is inferred where exactly one rule fits all groups of one size, stride and operations. What
cannot be told without the sizes of messages fits as if it were so, so that nothing wrong is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from nsys_llm.core.errors import UsageError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.experts import runs_experts
from nsys_llm.job.collectives.matched import Sequenced
from nsys_llm.job.collectives.stages import launched_n
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

from .groups import AXES, CommGroup, Layout, hosts_of, stride
from .job import CommJob

_OTHER: Final = "other"

#: Collectives of a step from which a group may be tensor parallel, and up to which it may only
#: exchange gradients; this project.
_LEAST_TENSOR: Final = 4
_MOST_DATA: Final = 3
_EXPERTS: Final = ("dispatch", "combine", "all_to_all")
#: How well a group fits an axis: not at all, as far as is known, or for sure.
_NOT, _MAY, _FITS = range(3)


def with_axes(job: CommJob, groups: Sequence[CommGroup], layout: Layout | None) -> list[CommGroup]:
    """Return groups with their axes."""
    if layout is not None:
        _check(job, groups, layout)
        world_n, result = np.prod(list(layout.sizes.values())), []
        for group in groups:
            ranks = frozenset(job.numbers[owner] for owner in group.owners)
            axis = layout.axis_of(ranks) or ("world" if len(ranks) == world_n else _OTHER)
            result.append(replace(group, axis=axis))
        return result
    return _inferred(job, groups)


def _check(job: CommJob, groups: Sequence[CommGroup], layout: Layout) -> None:
    """Raise UsageError where the ids of communicators contradict a layout."""
    ranks_of: dict[int, set[int]] = {}
    for group in groups:
        operations = {job.collectives.sequences[number].operation for number in group.rows}
        if group.comm is not None and SEND_RECV not in operations:
            ranks = ranks_of.setdefault(group.comm, set())
            ranks.update(job.numbers[owner] for owner in group.owners)
    for ranks in ranks_of.values():
        if layout.contradicted(frozenset(ranks)):
            names = ", ".join(map(str, sorted(ranks)))
            raise UsageError(
                f"--layout contradicts NCCL: ranks {names} are a communicator, and no whole axes."
            )


def _inferred(job: CommJob, groups: Sequence[CommGroup]) -> list[CommGroup]:
    """Return groups with the axis of each family: groups of one size, stride and operations."""
    patterns = [_Pattern(job, group, len(groups)) for group in groups]
    families: dict[Any, list[_Pattern]] = {}
    for pattern in patterns:
        families.setdefault(pattern.family, []).append(pattern)
    fits = {
        family: {
            axis: fit for axis, rule in _RULES.items() if (fit := min(map(rule, members))) != _NOT
        }
        for family, members in families.items()
    }
    # Gradients go along one axis: where another family has them for sure, this one has not.
    has_data = any(each == {"dp": _FITS} for each in fits.values())
    result = []
    for group, pattern in zip(groups, patterns, strict=True):
        axes = dict(fits[pattern.family])
        if has_data and axes == {"tp": _FITS, "dp": _MAY} and pattern.operations == {"all_reduce"}:
            del axes["dp"]
        axis = next(iter(axes)) if list(axes.values()) == [_FITS] else None
        result.append(replace(group, axis=axis, candidates=() if axis else tuple(axes)))
    return _without_merged(result)


def _likely(group: CommGroup) -> str | None:
    """Return the axis of a group, or the only one that it may be of."""
    return group.axis or (group.candidates[0] if len(group.candidates) == 1 else None)


def _without_merged(groups: Sequence[CommGroup]) -> list[CommGroup]:
    """Return groups without axes of those that cannot be: several in lockstep, taken for one.

    Groups along two axes have one rank in common at most; of two that have more the larger is none.
    """
    known = [(group, _likely(group)) for group in groups if _likely(group) in AXES]
    merged = {
        (axis, len(group.owners))
        for group, axis in known
        for other, other_axis in known
        if other_axis != axis
        and len(set(other.owners) & set(group.owners)) > 1
        and len(group.owners) > len(other.owners)
    }
    return [
        replace(group, axis=None, candidates=(str(group.axis),))
        if (group.axis, len(group.owners)) in merged
        else group
        for group in groups
    ]


@dataclass(frozen=True)
class _Pattern:
    """What a group does, as the rules of axes ask for it."""

    job: CommJob
    group: CommGroup
    groups_n: int

    @cached_property
    def sequences(self) -> list[Sequenced]:
        return [self.job.collectives.sequences[number] for number in self.group.rows]

    def ends(self, owner: int) -> list[tuple[Sequenced, IntArray]]:
        """Return when a member left the collectives of each sequence, its report's clock."""
        return [
            (sequence, sequence.own_end_ns(sequence.owners.index(owner))[rows])
            for sequence, rows in zip(self.sequences, self.group.rows.values(), strict=True)
        ]

    @cached_property
    def operations(self) -> frozenset[str]:
        return frozenset(sequence.operation for sequence in self.sequences)

    @property
    def ranks(self) -> list[int]:
        return [self.job.numbers[owner] for owner in self.group.owners]

    @property
    def family(self) -> tuple[Any, ...]:
        return len(self.group.owners), stride(self.ranks), tuple(sorted(self.operations))

    @property
    def is_ring(self) -> bool:
        """Whether payloads tell that members send to one, and receive from one."""
        for owner in self.group.owners:
            calls, sizes = self.job.calls(owner)
            peers = [
                calls.carried[code].peers
                for _, end_ns in self.ends(owner)
                for code in np.unique(sizes.carried[np.searchsorted(sizes.end_ns, end_ns)]).tolist()
            ]
            for some in peers:
                ways = [sum(peer[side] > 0 for peer in some) for side in (1, 2)]
                if ways != [1, 1]:
                    return False
        return True

    @property
    def has_experts(self) -> bool:
        """Whether a member launches kernels of experts."""
        devices = self.job.collectives.devices
        return any(runs_experts(devices[owner]) for owner in self.group.owners)

    @property
    def is_collective(self) -> bool:
        """Whether members of one part and stage all take part in what is no exchange of tokens."""
        apart = self.is_messages or self.operations & set(_EXPERTS)
        return not apart and len(self.places) == 1

    @property
    def is_messages(self) -> bool:
        return self.operations == {SEND_RECV}

    @cached_property
    def places(self) -> set[tuple[int, int | None]]:
        """Model part and stage of its members."""
        part, stages = self.job.parts, self.job.stages
        return {(part[owner], stages.apart(owner)) for owner in self.group.owners}

    @property
    def is_of_stages(self) -> bool:
        """Whether it links stages of a pipeline that follow each other, or the last and first."""
        for chain in self.job.chains:
            stage = {owner: at for at, some in enumerate(chain.stages) for owner in some}
            if all(owner in stage for owner in self.group.owners) and len(self.group.owners) == 2:
                apart = abs(stage[self.group.owners[0]] - stage[self.group.owners[1]])
                return apart in (1, len(chain.stages) - 1)
        return False

    @cached_property
    def most_n(self) -> float | None:
        """Most collectives of one operation in a median step; None without steps."""
        counts: dict[str, list[int]] = {}
        owner = self.group.owners[0]
        for sequence, end_ns in self.ends(owner):
            steps = self.job.steps.of(owner, end_ns)
            values, each = np.unique(steps[steps != NULL_INT], return_counts=True)
            if values.size:
                counts.setdefault(sequence.operation, []).append(int(np.median(each)))
        return max((sum(each) for each in counts.values()), default=None)

    @cached_property
    def is_amid_messages(self) -> bool:
        """Whether it has collectives in the first half of the messages of a step.

        Gradients may be exchanged while the last microbatch still goes back.
        """
        owner = self.group.owners[0]
        messages = [
            sequence.own_end_ns(sequence.owners.index(owner))
            for sequence in self.job.collectives.sequences
            if id(sequence) in self.job.stages.staged and owner in sequence.owners
        ]
        message_ns = np.sort(joined(messages))
        end_ns = joined([some for _, some in self.ends(owner)])
        step_of, steps = self.job.steps.of(owner, message_ns), self.job.steps.of(owner, end_ns)
        for step in np.unique(step_of[step_of != NULL_INT]).tolist():
            inside_ns, here_ns = message_ns[step_of == step], end_ns[steps == step]
            if ((here_ns > inside_ns[0]) & (here_ns < inside_ns[inside_ns.size // 2])).any():
                return True
        return False

    @property
    def is_one_program(self) -> bool:
        """Whether members surely launch the same between two messages."""
        if len(self.group.owners) > 2:
            return True
        left, right = launched_n(self.sequences, self.job.collectives.devices)
        return bool(np.unique(left - right).size == 1)


def _world(pattern: _Pattern) -> int:
    """All devices, where others are in smaller groups."""
    is_all = len(pattern.group.owners) == len(pattern.job.collectives.devices)
    return _FITS if is_all and pattern.groups_n > 1 and not pattern.is_messages else _NOT


def _context(pattern: _Pattern) -> int:
    """A ring sends keys and values on: each member to one, and from one. Peers alone tell that."""
    is_sure = all(sequence.confidence != LOW_CONFIDENCE for sequence in pattern.sequences)
    if not pattern.is_messages or pattern.is_of_stages or not is_sure:
        return _NOT
    if len(pattern.places) > 1 or not pattern.is_one_program:
        return _NOT
    return _FITS if pattern.is_ring else _MAY


def _expert(pattern: _Pattern) -> int:
    """Tokens go to experts, where there are some; else sequences may be exchanged for heads."""
    exchanges = bool(pattern.operations & set(_EXPERTS))
    if not exchanges and not (pattern.is_messages and pattern.has_experts):
        return _NOT
    return _FITS if exchanges and pattern.has_experts else _MAY


def _tensor(pattern: _Pattern) -> int:
    if not pattern.is_collective or stride(pattern.ranks) != 1:
        return _NOT
    hosts = hosts_of(pattern.job, pattern.group)
    if pattern.most_n is None or len(hosts) > 1 or None in hosts:
        return _MAY
    return _FITS if pattern.most_n >= _LEAST_TENSOR else _NOT


def _data(pattern: _Pattern) -> int:
    """Gradients: sizes are not known, so many collectives a step may be of as many sizes."""
    if not pattern.is_collective or pattern.is_amid_messages:
        return _NOT
    return _FITS if pattern.most_n is not None and pattern.most_n <= _MOST_DATA else _MAY


#: Axes and what groups of theirs look like.
_RULES: Final[Mapping[str, Any]] = {
    "world": _world,
    "pp": lambda some: _FITS if some.is_messages and some.is_of_stages else _NOT,
    "cp": _context,
    "ep": _expert,
    "tp": _tensor,
    "dp": _data,
}
