"""Tables of sizes and speeds: by group and size, of each collective, and why they are not known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.analyses.wall.communication_split import meets_and_leaves
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import (
    IntArray,
    subtract_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.report.columns import Columns, nullable, of_rank

from .groups import Group, hosts_of
from .job import Job
from .sizes import FloatArray, Sized

#: Where buckets of message sizes begin; an edge belongs to the upper one.
EDGES_BYTES: Final = (0, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
BUCKETS: Final = ("<4 KiB", "4-64 KiB", "64 KiB-1 MiB", "1-16 MiB", "16-256 MiB", ">=256 MiB")
#: Smaller messages do not fill a link.
PEAK_FROM_BYTES: Final = 16 << 20
#: More than a link can carry: switches reduce on the way.
_MOST_PCT: Final = 105.0
IN_NETWORK: Final = "in_network"
#: NVLink of one direction, GB/s, by the names of GPUs: NVIDIA's data sheets. Cards on PCIe have
#: other names; GH200 and GB200 may have no NVLink to others.
_LINKS_GB_S: Final = (
    (re.compile(r"V100-SXM"), 150),
    (re.compile(r"A100-SXM"), 300),
    (re.compile(r"A800-SXM|H800(?! PCIe)"), 200),
    (re.compile(r"H100 80GB HBM3|H100-SXM|\bH200(?! NVL)"), 450),
    (re.compile(r"\bB200\b"), 900),
)
#: Without switches a GPU shares its links among the others: V100 in machines of 8, later ones in
#: machines of 4. So many members use all links whatever the machine.
_WITHOUT_SWITCH: Final = re.compile(r"V100")
_SWITCHED_N: Final = 8
_ALL_LINKS_N: Final = 4


def message_rows(
    job: Job, groups: Sequence[Group], sizes: Mapping[int, Sized], link_gb_s: float | None
) -> list[dict[str, Any]]:
    """Return one row a group, operation and bucket of message sizes."""
    return [row for group in groups for row in _group_rows(job, group, sizes, link_gb_s)]


def _group_rows(
    job: Job, group: Group, sizes: Mapping[int, Sized], link_gb_s: float | None
) -> Iterator[dict[str, Any]]:
    picked: dict[tuple[str, int], dict[int, IntArray]] = {}
    for number, rows in group.rows.items():
        some = sizes[number]
        places = np.searchsorted(EDGES_BYTES, some.bytes[rows], side="right") - 1
        keys = list(zip(some.operation[rows].tolist(), places.tolist(), strict=True))
        for key in sorted(set(keys)):
            chosen = rows[[item == key for item in keys]]
            picked.setdefault(key, {})[number] = chosen
    peak = link_gb_s if link_gb_s is not None else _link_gb_s(job, group)
    for (operation, bucket), parts in sorted(picked.items()):
        yield {
            "group": group.number,
            "axis": group.axis,
            "operation": operation,
            "bucket": BUCKETS[bucket] if bucket >= 0 else None,
            **_row(job, group, parts, sizes, float(peak) if peak else None, bucket),
        }


def _row(
    job: Job,
    group: Group,
    parts: Mapping[int, IntArray],
    sizes: Mapping[int, Sized],
    peak_gb_s: float | None,
    bucket: int,
) -> dict[str, Any]:
    sequences = job.collectives.sequences

    def column(get: Any) -> npt.NDArray[Any]:
        return joined([get(number)[rows] for number, rows in parts.items()])

    ok, met = column(lambda at: sizes[at].ok), column(lambda at: sequences[at].waits.met)
    bytes_ = column(lambda at: sizes[at].bytes)
    moved = column(lambda at: sizes[at].size_bytes)
    transfer_ns = column(lambda at: sequences[at].waits.transfer_ns)
    bus = column(lambda at: sizes[at].factor)[ok] * moved[ok]
    reasons = column(lambda at: sizes[at].reason)
    taken_ns = int(transfer_ns[ok].sum())
    speeds: dict[str, float | None] = dict.fromkeys(("algbw_gb_s", "busbw_gb_s", "peak_pct"))
    reason = None if ok.all() else _usual(reasons[~ok])
    if taken_ns:
        speeds["algbw_gb_s"] = int(moved[ok].sum()) / taken_ns
        speeds["busbw_gb_s"] = None if np.isnan(bus).any() else float(bus.sum()) / taken_ns
        if peak_gb_s and speeds["busbw_gb_s"] and EDGES_BYTES[bucket] >= PEAK_FROM_BYTES:
            share_pct = 100.0 * speeds["busbw_gb_s"] / peak_gb_s
            is_link = share_pct <= _MOST_PCT
            speeds["peak_pct"], reason = (share_pct, reason) if is_link else (None, IN_NETWORK)
    channels = column(lambda at: sizes[at].channels_n)
    known = bytes_ != NULL_INT
    return {
        "collectives_n": ok.size,
        "sized_n": int(ok.sum()),
        "bytes": int(bytes_[known].sum()) if known.any() else None,
        "size_bytes": int(moved[ok].sum()) if ok.any() else None,
        "transfer_ns": int(transfer_ns[met].sum()),
        "wait_ns": int(column(lambda at: sequences[at].waits.wait_ns)[met].sum()),
        **_exposed(job, group, parts),
        **speeds,
        "peak_gb_s": peak_gb_s,
        "channels_n": int(channels.max()) if channels.max() != NULL_INT else None,
        "reason": reason,
    }


def _usual(reasons: npt.NDArray[Any]) -> str:
    names, counts = np.unique(reasons.astype(str), return_counts=True)
    return str(names[counts.argmax()])


def _exposed(job: Job, group: Group, parts: Mapping[int, IntArray]) -> dict[str, Any]:
    """Return the transfer beside which nothing computes, of the device that has most of it."""
    exposed_ns = {}
    for owner in group.owners:
        begins, ends = [], []
        for number, rows in parts.items():
            sequence = job.collectives.sequences[number]
            met = rows[sequence.waits.met[rows]]
            _, meet_ns, leave_ns = meets_and_leaves(sequence, owner)
            begins.append(meet_ns[met])
            ends.append(leave_ns[met])
        spans = union_intervals(joined(begins), joined(ends))
        exposed_ns[owner] = total_length_ns(subtract_intervals(spans, job.work[owner].hidden))
    worst = max(exposed_ns, key=lambda owner: exposed_ns[owner])
    return {"exposed_ns": exposed_ns[worst], **job.who(worst)}


def _link_gb_s(job: Job, group: Group) -> int | None:
    """Return what a link of a group's GPUs carries in one direction; None where not known."""
    facts = [job.collectives.devices[owner].rank.facts for owner in group.owners]
    hosts, gpus = hosts_of(job, group), {name for some in facts if some for name in some.gpus}
    if len(hosts) > 1 or None in hosts or len(gpus) != 1:
        return None
    name, machine_n = gpus.pop(), min(len(some.gpus) for some in facts if some)
    has_switch = machine_n >= _SWITCHED_N and not _WITHOUT_SWITCH.search(name)
    all_links_n = _SWITCHED_N if _WITHOUT_SWITCH.search(name) else _ALL_LINKS_N
    if not has_switch and len(group.owners) < all_links_n:
        return None
    return next((speed for pattern, speed in _LINKS_GB_S if pattern.search(name)), None)


def transfers(job: Job, groups: Sequence[Group], sizes: Mapping[int, Sized]) -> Columns:
    """Return one row a matched collective, sequence by sequence."""
    group_of: dict[int, IntArray] = {
        number: np.full(some.bytes.size, NULL_INT) for number, some in sizes.items()
    }
    for group in groups:
        for number, rows in group.rows.items():
            group_of[number][rows] = group.number
    parts = [_transfers(job, number, some, group_of[number]) for number, some in sizes.items()]
    return dict(pd.concat(map(pd.DataFrame, parts), ignore_index=True)) if parts else {}


def _transfers(job: Job, number: int, some: Sized, group: IntArray) -> Columns:
    sequence = job.collectives.sequences[number]
    owner, n = sequence.owners[0], some.bytes.size
    transfer_ns = np.maximum(sequence.waits.transfer_ns, 1)
    algbw: FloatArray = np.where(some.ok, some.size_bytes / transfer_ns, np.nan)
    return {
        "sequence_id": np.full(n, number),
        "ordinal": np.arange(n),
        "group": group,
        "step": nullable(job.steps.of(owner, sequence.own_end_ns(0))),
        "operation": some.operation,
        "bytes": nullable(some.bytes),
        "size_bytes": nullable(np.where(some.ok, some.size_bytes, NULL_INT)),
        "algbw_gb_s": algbw,
        "busbw_gb_s": algbw * some.factor,
        "reason": some.reason,
    }


def payload_rows(job: Job) -> list[dict[str, Any]]:
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
