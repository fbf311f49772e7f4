"""Where each rank stands: its part of the model, its stage, and its place along each axis."""

from __future__ import annotations

from collections.abc import Sequence

from nsys_llm.report.columns import Columns

from .groups import Group
from .job import Job
from .layout import AXES, Layout
from .pipelines import Chain


def stage_columns(
    job: Job,
    chains: Sequence[Chain],
    groups: Sequence[Group],
    layout: Layout | None,
    names: Sequence[str],
) -> Columns:
    """Return one row a device that communicates."""
    place = {
        owner: (chain.number, at)
        for chain in chains
        for at, some in enumerate(chain.stages)
        for owner in some
    }
    rows = []
    for owner, device in enumerate(job.collectives.devices):
        number, stage = place.get(owner, (None, None))
        rows.append(
            {
                "rank": job.rank(owner),
                "file": device.rank.file,
                "device_id": device.device_id,
                "model_part": job.parts[owner],
                "pipeline": number,
                "stage": stage,
                **_places(job, groups, layout, owner),
                **({} if layout else {"pp": stage}),
            }
        )
    return {name: [row[name] for row in rows] for name in names}


def _places(
    job: Job, groups: Sequence[Group], layout: Layout | None, owner: int
) -> dict[str, int | None]:
    """Return the place of a device along each axis, None where that is not known."""
    if layout is not None:
        known = layout.places(job.rank(owner))
        return {axis: known.get(axis) for axis in AXES}
    places: dict[str, int | None] = dict.fromkeys(AXES)
    for group in groups:
        if group.axis in AXES and owner in group.owners:
            places[str(group.axis)] = group.owners.index(owner)
    return places
