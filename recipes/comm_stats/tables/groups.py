"""Groups of ranks that communicate: sequences of the same devices, by communicator where known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.job.collectives.matched import communicator
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

from .job import CommJob
from .layout import AXES, Layout
from .sizes import Sized

#: Why the stage of a device is not known.
_NOT_MATCHED: Final = "not_matched"
_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True)
class CommGroup:
    """Devices that communicate with each other.

    Attributes:
        number: From 0, in the order of devices.
        owners: Its devices.
        rows: Which of its collectives, by the numbers of its sequences in
            `MatchedCollectives.sequences`.
        comm: Id of its communicator; None where it is not known.
        axis: Of parallelism; None where it is not known.
        candidates: Axes that it may be of.
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
        reason = _NOT_MATCHED if owner in job.stages.parts else None
        part = {"model_part": job.parts[owner], "pipeline": number, "stage": stage}
        rows.append({**job.who(owner), **part, **places, "reason": reason, **_steps(job, owner)})
    return rows


def _steps(job: CommJob, owner: int) -> dict[str, int | None]:
    """Return how many full steps of the job a device has, and for how long."""
    if not job.work[owner].has_steps:
        return {"steps_n": None, "steps_ns": None}
    window_ns = job.work[owner].window_ns[job.steps.rows(owner, job.whole_steps)]
    return {"steps_n": len(window_ns), "steps_ns": int((window_ns[:, 1] - window_ns[:, 0]).sum())}
