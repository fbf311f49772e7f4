"""How long the transfers of a group take beside those of groups that do the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.analyses.collectives.matched import communicator

from .groups import CommGroup, hosts_of
from .job import CommJob

#: Without their sizes, exchanges of tokens are not known to be alike.
_UNEVEN: Final = ("dispatch", "combine", "all_to_all")
#: What a collective has in common with one of a twin: size, else what was launched.
_ALIKE: Final = ["operation", "kernel", "bytes", "channels_n"]


def twin_columns(
    job: CommJob,
    groups: Sequence[CommGroup],
    frame: pd.DataFrame,
    messages: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return columns of `groups`: transfer, and beside whose it takes how many times as long.

    Args:
        frame: What is known of each collective, see `collective_frame`.
        messages: Rows of `message_sizes`.
    """
    medians = _medians(job, frame)
    families = [_family(job, group) for group in groups]
    rows = []
    for group, family in zip(groups, families, strict=True):
        own = [row for row in messages if row["group"] == group.number]
        worst = max(own, key=lambda row: row["exposed_ns"], default=None)
        twins = [it for it, its in zip(groups, families, strict=True) if its == family]
        ratio, met = _times(medians, group, [it for it in twins if it is not group])
        exposed_ns = sum(row["exposed_ns"] for row in own)
        hosts = hosts_of(job, group)
        rows.append(
            {
                "transfer_ns": sum(row["transfer_ns"] for row in own),
                "exposed_ns": exposed_ns,
                "rank": None if worst is None else worst["rank"],
                "device_id": None if worst is None else worst["device_id"],
                "host": next(iter(hosts)) if len(hosts) == 1 else None,
                "twins": _called(job, met) if met else None,
                "times": ratio,
                "lost_ns": None if ratio is None else max(round((1 - 1 / ratio) * exposed_ns), 0),
            }
        )
    return rows


def _family(job: CommJob, group: CommGroup) -> tuple[Any, ...]:
    """Return what groups share that should take as long: axis, size, machines, part of a model."""
    parts = frozenset(job.parts[owner] for owner in group.owners)
    hosts = hosts_of(job, group)
    hosts_n = None if None in hosts else len(hosts)
    return group.axis, group.candidates, len(group.owners), hosts_n, parts


def _medians(job: CommJob, frame: pd.DataFrame) -> pd.DataFrame:
    """Return median transfer and number of collectives, by group and what these have in common."""
    if frame.empty:
        return pd.DataFrame(columns=["group", *_ALIKE, "median", "count"])
    sequences = job.collectives.sequences
    kernels = frame["sequence_id"].map({at: item.kernel for at, item in enumerate(sequences)})
    rows = frame.assign(kernel=kernels)[frame["met"]]
    rows = rows[(rows["bytes"] >= 0) | ~rows["operation"].isin(_UNEVEN)]
    return rows.groupby(["group", *_ALIKE])["transfer_ns"].agg(["median", "count"]).reset_index()


def _times(
    medians: pd.DataFrame, group: CommGroup, twins: Sequence[CommGroup]
) -> tuple[float | None, list[CommGroup]]:
    """Return how many times as long its transfers take, and the twins with collectives like it."""
    own = medians[medians["group"] == group.number]
    others = medians[medians["group"].isin([twin.number for twin in twins])]
    others = others.merge(own[_ALIKE])
    usual = others.groupby(_ALIKE)["median"].median().rename("usual").reset_index()
    both = own.merge(usual)
    usual_ns = float((both["usual"] * both["count"]).sum())
    if not usual_ns:
        return None, []
    numbers = set(others["group"])
    own_ns = float((both["median"] * both["count"]).sum())
    return own_ns / usual_ns or None, [twin for twin in twins if twin.number in numbers]


def _called(job: CommJob, groups: Sequence[CommGroup]) -> str:
    owners = sorted({owner for group in groups for owner in group.owners})
    return communicator(job.collectives.devices, tuple(owners))
