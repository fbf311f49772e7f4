"""Groups of ranks that communicate: sequences of the same devices, by communicator where known.

And the layout that a person gives: how many ranks along each axis of parallelism.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from nsys_llm.core.errors import UsageError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.job.collectives.matched import communicator
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

from .job import CommJob
from .sizes import Sized

#: Axes in the order in which ranks are numbered, the first one fastest, as Megatron-LM has them.
AXES: Final[tuple[str, ...]] = ("tp", "cp", "ep", "dp", "pp")
_SIZE: Final = re.compile(r"(tp|cp|ep|dp|pp)=([1-9]\d{0,6})")
_ORDER: Final = "order="
#: Axes of which a communicator has all ranks, or one.
_WHOLE: Final = ("tp", "ep")
#: Why the stage of a device is not known.
_NOT_MATCHED: Final = "not_matched"
_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True)
class Layout:
    """The place of each rank along the axes.

    Attributes:
        sizes: By axis, in the order in which ranks are numbered.
    """

    sizes: Mapping[str, int]

    def places(self, rank: int) -> dict[str, int]:
        """Return the place of a rank along each axis."""
        places = {}
        for axis, size in self.sizes.items():
            rank, places[axis] = divmod(rank, size)
        return places

    def axis_of(self, ranks: frozenset[int]) -> str | None:
        """Return the axis along which alone some ranks differ, and all that do; None for none.

        Of a pipeline two stages exchange messages.
        """
        places = [self.places(rank) for rank in ranks]
        differ = [axis for axis in self.sizes if len({place[axis] for place in places}) > 1]
        if len(differ) == 1 and (differ[0] == "pp" or len(ranks) == self.sizes[differ[0]]):
            return differ[0]
        return None

    def contradicted(self, ranks: frozenset[int]) -> bool:
        """Return whether a communicator cannot be one: it is not made of whole axes.

        Data and context may be split in groups of groups, and some stages may share a layer.
        """
        places = [self.places(rank) for rank in ranks]
        spread = {axis: len({place[axis] for place in places}) for axis in self.sizes}
        is_whole = all(spread[axis] in (1, self.sizes[axis]) for axis in _WHOLE if axis in spread)
        return not is_whole or prod(spread.values()) != len(ranks)


def parse_layout(text: str | None, ranks_n: int) -> Layout | None:
    """Return what `tp=8,pp=4[,order=tp-cp-ep-dp-pp]` says; None without a text.

    Raises:
        UsageError: It is none, or has another number of ranks.
    """
    if text is None:
        return None
    sizes: dict[str, int] = {}
    order = AXES
    for part in text.split(","):
        match = _SIZE.fullmatch(part.strip())
        if match is not None and match[1] not in sizes:
            sizes[match[1]] = int(match[2])
        elif part.strip().startswith(_ORDER):
            order = tuple(part.strip().removeprefix(_ORDER).split("-"))
        else:
            raise UsageError(f"'{text}' is not a layout; write like tp=8,pp=4.")
    if sorted(set(order)) != sorted(order) or not sizes.keys() <= set(order) <= set(AXES):
        raise UsageError(f"the order of '{text}' does not have each of its axes once.")
    if prod(sizes.values()) != ranks_n:
        raise UsageError(
            f"the layout '{text}' has {prod(sizes.values())} ranks; the job has {ranks_n}. GPUs "
            "count as ranks where each process has equally many, and several."
        )
    return Layout({axis: sizes.get(axis, 1) for axis in order})


@dataclass(frozen=True)
class CommGroup:
    """Devices that communicate with each other.

    Attributes:
        rows: Which of its collectives, by the numbers of its sequences in
            `MatchedCollectives.sequences`.
        comm: Id of its communicator; None where it is not known.
        axis: Of parallelism, likewise.
    """

    number: int
    owners: tuple[int, ...]
    rows: Mapping[int, IntArray]
    comm: int | None = None
    axis: str | None = None
    candidates: tuple[str, ...] = ()


def find_groups(job: CommJob, sizes: Mapping[int, Sized]) -> list[CommGroup]:
    """Return the groups, without axes: ranks that meet, of these each communicator that is known.

    Messages are apart from all else. Where all that is known is one communicator, what says none
    is of it.
    """
    by_members: dict[tuple[tuple[int, ...], bool], list[int]] = {}
    for number in sizes:
        sequence = job.collectives.sequences[number]
        key = tuple(sorted(sequence.owners)), sequence.operation == SEND_RECV
        by_members.setdefault(key, []).append(number)
    groups: list[CommGroup] = []
    for (owners, _), numbers in sorted(by_members.items()):
        ids = np.unique(np.concatenate([sizes[number].comm for number in numbers])).tolist()
        comms = [comm for comm in ids if comm != NULL_INT]
        for comm in comms if len(comms) == 1 else ids:
            wanted = [comm, *([NULL_INT] if len(comms) == 1 else [])]
            rows = {at: np.flatnonzero(np.isin(sizes[at].comm, wanted)) for at in numbers}
            there = {at: some for at, some in rows.items() if some.size}
            known = None if comm == NULL_INT else comm
            groups.append(CommGroup(len(groups), owners, there, known))
    return groups


def group_rows(job: CommJob, groups: Sequence[CommGroup]) -> list[dict[str, Any]]:
    """Return one row a group."""
    rows = []
    for group in groups:
        ranks, hosts = [job.numbers[owner] for owner in group.owners], hosts_of(job, group)
        rows.append(
            {
                "group": group.number,
                "comm_id": None if group.comm is None else f"{group.comm & _BITS:016x}",
                "axis": group.axis,
                "candidates": ", ".join(group.candidates) or None,
                "ranks": communicator(job.collectives.devices, group.owners),
                "ranks_n": len(ranks),
                "stride": stride(ranks),
                "hosts_n": None if None in hosts else len(hosts),
                "sequences": ", ".join(map(str, group.rows)),
                "collectives_n": sum(some.size for some in group.rows.values()),
            }
        )
    return rows


def hosts_of(job: CommJob, group: CommGroup) -> set[str | None]:
    """Return the machines of a group; with None where they are not known."""
    return {job.collectives.devices[owner].rank.host for owner in group.owners}


def stride(ranks: Sequence[int]) -> int | None:
    """Return by how much the numbers of ranks differ, each from the one before; None if not."""
    steps = set(np.diff(sorted(ranks)).tolist())
    return steps.pop() if len(steps) == 1 else None


def stage_rows(
    job: CommJob, groups: Sequence[CommGroup], layout: Layout | None
) -> list[dict[str, Any]]:
    """Return one row a device: its part of the model, its stage, its place along each axis."""
    place = {
        owner: (chain.number, at)
        for chain in job.chains
        for at, some in enumerate(chain.stages)
        for owner in some
    }
    rows = []
    for owner in range(len(job.collectives.devices)):
        number, stage = place.get(owner, (None, None))
        places: dict[str, int | None] = {**dict.fromkeys(AXES), "pp": stage}
        if layout is not None:
            places = {**dict.fromkeys(AXES), **layout.places(job.numbers[owner])}
        else:
            of_axes = [some for some in groups if some.axis in AXES and some.axis != "pp"]
            places |= {
                str(some.axis): some.owners.index(owner) for some in of_axes if owner in some.owners
            }
        steps_ns = None
        if job.work[owner].has_steps:
            steps_ns = np.diff(job.work[owner].window_ns[job.steps.rows(owner, job.whole_steps)])
        rows.append(
            {
                **job.who(owner),
                "model_part": job.parts[owner],
                "pipeline": number,
                "stage": stage,
                **places,
                "reason": _NOT_MATCHED if owner in job.stages.parts else None,
                "steps_n": None if steps_ns is None else len(steps_ns),
                "steps_ns": None if steps_ns is None else int(steps_ns.sum()),
            }
        )
    return rows
