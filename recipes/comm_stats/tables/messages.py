"""Tables of sizes and speeds: by group and size, of each collective, and why they are not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nccl.payloads import OK
from nsys_llm.job.collectives.matched import meets_and_leaves
from nsys_llm.numeric.intervals import subtract_intervals, total_length_ns, union_intervals
from nsys_llm.report.columns import Columns, nullable, of_rank

from . import links
from .groups import CommGroup, hosts_of
from .job import CommJob
from .sizes import Sized

#: Where buckets of message sizes begin; an edge belongs to the upper one.
EDGES_BYTES: Final = (0, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
BUCKETS: Final = ("<4 KiB", "4-64 KiB", "64 KiB-1 MiB", "1-16 MiB", "16-256 MiB", ">=256 MiB")
#: Smaller messages do not fill a link.
PEAK_FROM_BYTES: Final = 16 << 20
IN_NETWORK: Final = "in_network"


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
        link_gb_s or links.of_group_gb_s(job, group.owners, hosts_of(job, group))
        for group in groups
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
            if peak_pct > links.MOST_PCT:
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
