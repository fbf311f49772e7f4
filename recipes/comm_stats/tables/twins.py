"""How long the transfers of a group take beside those of groups that do the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.job.collectives.matched import communicator
from nsys_llm.job.ranks.chance import of_others
from nsys_llm.report.records import grouped

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
    compared = _compared(_medians(job, frame), {it.number: _family(job, it) for it in groups})
    sums = compared.groupby("group")[["own_ns", "usual_ns"]].sum()
    times = (sums["own_ns"] / sums["usual_ns"]).where(sums["usual_ns"] > 0).dropna().to_dict()
    met_in = compared.groupby("alike")["group"].agg(frozenset)
    own_messages, rows = grouped(messages, "group"), []
    for group in groups:
        own = own_messages.get((group.number,), [])
        worst = max(own, key=lambda row: row["exposed_ns"], default=None)
        ratio = times.get(group.number) or None
        alike = compared.loc[compared["group"] == group.number, "alike"] if ratio else ()
        met = frozenset[int]().union(*met_in[alike]) - {group.number} if ratio else frozenset()
        exposed_ns = sum(row["exposed_ns"] for row in own)
        hosts = hosts_of(job, group)
        rows.append(
            {
                "transfer_ns": sum(row["transfer_ns"] for row in own),
                "exposed_ns": exposed_ns,
                "rank": None if worst is None else worst["rank"],
                "device_id": None if worst is None else worst["device_id"],
                "host": next(iter(hosts)) if len(hosts) == 1 else None,
                "twins": _called(job, [it for it in groups if it.number in met]) if met else None,
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


def _compared(medians: pd.DataFrame, families: Mapping[int, tuple[Any, ...]]) -> pd.DataFrame:
    """Return medians of groups with twins, by kind of collective of a family beside the others'."""
    codes = {family: at for at, family in enumerate(dict.fromkeys(families.values()))}
    family = medians["group"].map({number: codes[key] for number, key in families.items()})
    kinds = medians.assign(family=family).groupby(["family", *_ALIKE])
    rows = medians.assign(alike=kinds.ngroup(), usual=kinds["median"].transform(_of_others))
    rows = rows.dropna(subset="usual")
    return rows.assign(
        own_ns=rows["median"] * rows["count"], usual_ns=rows["usual"] * rows["count"]
    )


def _of_others(medians: pd.Series[float]) -> pd.Series[float]:
    """Return for each group the median of the others; null for one alone."""
    values = medians.to_numpy()
    usual = of_others(values) if len(values) > 1 else math.nan
    return pd.Series(usual, medians.index)


def _called(job: CommJob, groups: Sequence[CommGroup]) -> str:
    owners = sorted({owner for group in groups for owner in group.owners})
    return communicator(job.collectives.devices, tuple(owners))
