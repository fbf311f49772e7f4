"""Tables of sizes and speeds: by group and size, of each collective, and why they are not known.

And how long the transfers of a group take beside those of groups that do the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nccl.payloads import OK
from nsys_llm.job.collectives.matched import communicator, meets_and_leaves
from nsys_llm.job.ranks.chance import of_others
from nsys_llm.numeric.intervals import subtract_intervals, total_length_ns, union_intervals
from nsys_llm.report.columns import Columns, nullable, of_rank
from nsys_llm.report.records import grouped

from .groups import CommGroup, hosts_of
from .job import CommJob
from .sizes import MOST_PCT, Sized, of_group_gb_s

#: Where buckets of message sizes begin; an edge belongs to the upper one.
EDGES_BYTES: Final = (0, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
BUCKETS: Final = ("<4 KiB", "4-64 KiB", "64 KiB-1 MiB", "1-16 MiB", "16-256 MiB", ">=256 MiB")
#: Smaller messages do not fill a link.
PEAK_FROM_BYTES: Final = 16 << 20
IN_NETWORK: Final = "in_network"
#: Without their sizes, exchanges of tokens are not known to be alike.
_UNEVEN: Final = ("dispatch", "combine", "all_to_all")
#: What a collective has in common with one of a twin: size, else what was launched.
_ALIKE: Final = ["operation", "kernel", "bytes", "channels_n"]


def collective_frame(
    job: CommJob, groups: Sequence[CommGroup], sizes: Mapping[int, Sized]
) -> pd.DataFrame:
    """Return what is known of each matched collective, sequence by sequence; NULL_INT for null."""
    group_of = {number: np.full(some.bytes.size, NULL_INT) for number, some in sizes.items()}
    for group in groups:
        for number, rows in group.rows.items():
            group_of[number][rows] = group.number
    parts = []
    for number, some in sizes.items():
        sequence = job.collectives.sequences[number]
        parts.append(
            pd.DataFrame(
                {
                    "sequence_id": number,
                    "ordinal": np.arange(len(sequence)),
                    "group": group_of[number],
                    "step": job.steps.of(sequence.owners[0], sequence.own_end_ns(0)),
                    "met": sequence.waits.met,
                    "kernel": sequence.kernel,
                    "transfer_ns": sequence.waits.transfer_ns,
                    "wait_ns": sequence.waits.wait_ns,
                    **vars(some),
                    "ok": some.reason == OK,
                }
            )
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def transfers(frame: pd.DataFrame, names: Sequence[str]) -> Columns:
    """Return one row a matched collective, by its `collective_frame`."""
    if frame.empty:
        return {}
    transfer_ns = np.maximum(frame["transfer_ns"], 1)
    algbw = np.where(frame["ok"], frame["size_bytes"] / transfer_ns, np.nan)
    columns = {
        **frame,
        "step": nullable(frame["step"].to_numpy()),
        "bytes": nullable(frame["bytes"].to_numpy()),
        "size_bytes": nullable(np.where(frame["ok"], frame["size_bytes"], NULL_INT)),
        "algbw_gb_s": algbw,
        "busbw_gb_s": algbw * frame["factor"],
    }
    return {name: columns[name] for name in names}


def message_rows(
    job: CommJob, groups: Sequence[CommGroup], frame: pd.DataFrame, link_gb_s: float | None
) -> list[dict[str, Any]]:
    """Return one row a group, operation and bucket of message sizes."""
    if frame.empty:
        return []
    bucket = np.searchsorted(EDGES_BYTES, frame["bytes"], side="right") - 1
    peaks = [
        link_gb_s or of_group_gb_s(job, group.owners, hosts_of(job, group)) for group in groups
    ]
    parts: Any = frame.groupby(["group", "operation", bucket])
    return [
        {
            "group": number,
            "axis": groups[number].axis,
            "operation": operation,
            "bucket": BUCKETS[at] if at >= 0 else None,
            **_row(rows, peaks[number], at),
            **_exposed(job, groups[number], rows),
        }
        for (number, operation, at), rows in parts
    ]


def _row(rows: pd.DataFrame, peak_gb_s: float | None, bucket: int) -> dict[str, Any]:
    known, ok, met = rows["bytes"] != NULL_INT, rows[rows["ok"]], rows[rows["met"]]
    moved, taken_ns = int(ok["size_bytes"].sum()), int(ok["transfer_ns"].sum())
    reason = None if len(ok) == len(rows) else rows["reason"][~rows["ok"]].mode().iloc[0]
    algbw, busbw, peak_pct = (None, None, None)
    if taken_ns:
        bus = ok["factor"].to_numpy() * ok["size_bytes"].to_numpy()
        algbw, busbw = moved / taken_ns, None if np.isnan(bus).any() else bus.sum() / taken_ns
        if peak_gb_s and busbw and EDGES_BYTES[bucket] >= PEAK_FROM_BYTES:
            peak_pct = 100.0 * busbw / peak_gb_s
            if peak_pct > MOST_PCT:
                peak_pct, reason = None, IN_NETWORK
    channels_n = int(rows["channels_n"].max())
    return {
        "collectives_n": len(rows),
        "sized_n": len(ok),
        "bytes": int(rows["bytes"][known].sum()) if known.any() else None,
        "size_bytes": moved if len(ok) else None,
        "transfer_ns": int(met["transfer_ns"].sum()),
        "wait_ns": int(met["wait_ns"].sum()),
        "algbw_gb_s": algbw,
        "busbw_gb_s": busbw,
        "peak_gb_s": peak_gb_s,
        "peak_pct": peak_pct,
        "channels_n": None if channels_n == NULL_INT else channels_n,
        "reason": reason,
    }


def _exposed(job: CommJob, group: CommGroup, rows: pd.DataFrame) -> dict[str, Any]:
    """Return the transfer beside which nothing computes, of the device that has most of it."""
    ordinals = list(rows[rows["met"]].groupby("sequence_id")["ordinal"])
    exposed_ns = {}
    for owner in group.owners:
        parts = [np.empty((2, 0), dtype=np.int64)]
        for number, ordinal in ordinals:
            times = meets_and_leaves(job.collectives.sequences[number], owner)
            parts.append(np.stack(times[1:])[:, ordinal])
        spans = union_intervals(*np.concatenate(parts, axis=1))
        exposed_ns[owner] = total_length_ns(subtract_intervals(spans, job.work[owner].hidden))
    worst = max(exposed_ns, key=lambda owner: exposed_ns[owner])
    who = job.who(worst)
    return {"exposed_ns": exposed_ns[worst], "rank": who["rank"], "device_id": who["device_id"]}


def payload_rows(job: CommJob) -> list[dict[str, Any]]:
    """Return one row a rank and reason: how many calls, and kernels, are known or not, and why."""
    ranks = {device.rank.key: device.rank for device in job.collectives.devices}
    rows = []
    for key, rank in ranks.items():
        calls, kernels_n = job.ranks[key].calls, Counter[str]()
        for device in calls.devices:
            for code, count in enumerate(np.bincount(device.carried).tolist()):
                kernels_n[calls.carried[code].reason] += count
        rows += [
            {
                **of_rank(rank),
                "reason": reason,
                "calls_n": calls.calls_n.get(reason, 0),
                "kernels_n": kernels_n[reason],
            }
            for reason in sorted({*calls.calls_n, *(+kernels_n)})
        ]
    return rows


def twin_columns(
    job: CommJob,
    groups: Sequence[CommGroup],
    frame: pd.DataFrame,
    messages: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return columns of `groups`: transfer, and beside whose it takes how many times as long."""
    compared = _compared(_medians(frame), {it.number: _family(job, it) for it in groups})
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
        twins = {owner for it in groups if it.number in met for owner in it.owners}
        exposed_ns = sum(row["exposed_ns"] for row in own)
        hosts = hosts_of(job, group)
        rows.append(
            {
                "transfer_ns": sum(row["transfer_ns"] for row in own),
                "exposed_ns": exposed_ns,
                "rank": None if worst is None else worst["rank"],
                "device_id": None if worst is None else worst["device_id"],
                "host": next(iter(hosts)) if len(hosts) == 1 else None,
                "twins": communicator(job.collectives.devices, sorted(twins)) if met else None,
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


def _medians(frame: pd.DataFrame) -> pd.DataFrame:
    """Return median transfer and number of collectives, by group and what these have in common."""
    if frame.empty:
        return pd.DataFrame(columns=["group", *_ALIKE, "median", "count"])
    rows = frame[frame["met"] & ((frame["bytes"] >= 0) | ~frame["operation"].isin(_UNEVEN))]
    return rows.groupby(["group", *_ALIKE])["transfer_ns"].agg(["median", "count"]).reset_index()


def _compared(medians: pd.DataFrame, families: Mapping[int, tuple[Any, ...]]) -> pd.DataFrame:
    """Return medians of groups with twins, by kind of collective of a family beside the others'."""
    codes = {family: at for at, family in enumerate(dict.fromkeys(families.values()))}
    family = medians["group"].map({number: codes[key] for number, key in families.items()})
    kinds = medians.assign(family=family).groupby(["family", *_ALIKE])
    # The median of the others; null for one alone.
    usual = kinds["median"].transform(
        lambda some: of_others(some.to_numpy()) if len(some) > 1 else math.nan
    )
    rows = medians.assign(alike=kinds.ngroup(), usual=usual).dropna(subset="usual")
    return rows.assign(
        own_ns=rows["median"] * rows["count"], usual_ns=rows["usual"] * rows["count"]
    )
