"""Tables of collectives: by communicator, single ones, who made whom wait, coverage, clocks.

Who is late beyond chance is in `rank_verdicts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.job.collectives.matched import MatchedCollectives, Sequenced, communicator
from nsys_llm.job.collectives.profiler import profiler_waits_ns, without_profiler
from nsys_llm.job.collectives.stages import find_stages
from nsys_llm.job.collectives.waits import Waits, collective_waits, member_waits
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import stacked
from nsys_llm.report.columns import Columns, of_rank, percent, taken
from nsys_llm.trace.identity import RankKey

#: Whether collectives wait or transfer, and what cannot be told: the four classes that
#: vllm-project/vllm#52777 asks for; 60 and 40 % are ours.
TRANSFER: Final = "transfer"
SKEW: Final = "skew"
MIXED: Final = "mixed"
INCONCLUSIVE: Final = "inconclusive"

#: Share of waiting in the summed durations, in percent: above, skew; below, transfer.
SKEW_PCT: Final = 60
TRANSFER_PCT: Final = 40

#: How late each member came to the collectives of each sequence because of the profiler, see
#: `nsys_llm.job.collectives.profiler.delays_ns`.
Delays = Sequence[tuple[IntArray, ...]]


def sequence_columns(collectives: MatchedCollectives) -> Columns:
    """Return one row a sequence of collectives that at least two ranks have."""
    every, stages = collectives.sequences, find_stages(collectives)
    ranks_n = np.array([len(sequence.owners) for sequence in every], dtype=np.int64)
    residual_ns = np.array([sequence.residual_ns for sequence in every], dtype=np.int64)
    sums = [
        [int(ns[waits.met].sum()) for ns in (waits.met, waits.total_ns, waits.wait_ns,
                                             waits.transfer_ns)]
        for waits in (sequence.waits for sequence in every)
    ]  # fmt: skip
    met_n, total_ns, wait_ns, transfer_ns = np.array(sums, dtype=np.int64).reshape(-1, 4).T
    doubt_ns = met_n * (ranks_n - 1) * residual_ns
    return {
        "sequence_id": np.arange(len(every)),
        "communicator": [communicator(collectives.devices, sequence.owners) for sequence in every],
        **{
            name: [getattr(sequence, name) for sequence in every]
            for name in ("operation", "kernel", "confidence")
        },
        "ranks_n": ranks_n,
        "collectives_n": [len(sequence) for sequence in every],
        "overlap_n": met_n,
        "class": classes(wait_ns, total_ns, doubt_ns, met_n > 0),
        "total_ns": total_ns,
        "wait_ns": wait_ns,
        "wait_pct": percent(wait_ns, total_ns),
        "transfer_ns": transfer_ns,
        "transfer_rank_ns": transfer_ns * ranks_n,
        "end_skew_ns": total_ns - wait_ns - transfer_ns * ranks_n,
        "residual_ns": residual_ns,
        "staged": [id(sequence) in stages.staged | stages.closing for sequence in every],
    }


def collective_columns(collectives: MatchedCollectives, delays: Delays) -> Columns:
    """Return one row a collective that all ranks of its communicator have, in order of time.

    What needs an instant at which all are in it is null without one.
    """
    every = collectives.sequences
    if not every:
        return {}
    sizes = [len(sequence) for sequence in every]
    waits = stacked(Waits, [sequence.waits for sequence in every])
    ranks_n = np.repeat([len(sequence.owners) for sequence in every], sizes)
    doubt_ns = (ranks_n - 1) * np.repeat([sequence.residual_ns for sequence in every], sizes)
    profiler_ns = [
        profiler_waits_ns(
            item.waits, without_profiler(item.waits, item.start_ns, item.end_ns, late)[0]
        )
        for item, late in zip(every, delays, strict=True)
    ]
    late = joined([np.array(sequence.owners)[sequence.waits.late] for sequence in every])
    names = [communicator(collectives.devices, sequence.owners) for sequence in every]
    operations = [sequence.operation for sequence in every]
    transfer_rank_ns = waits.transfer_ns * ranks_n
    columns: Columns = {
        "sequence_id": np.repeat(np.arange(len(every)), sizes),
        "communicator": np.repeat(np.array(names, dtype=object), sizes),
        "operation": np.repeat(np.array(operations, dtype=object), sizes),
        "ordinal": joined([np.arange(n) for n in sizes]),
        "ranks_n": ranks_n,
        "overlap": waits.met,
        "class": classes(waits.wait_ns, waits.total_ns, doubt_ns, waits.met),
        "first_start_ns": waits.first_start_ns,
        "last_start_ns": waits.last_start_ns,
        "first_end_ns": waits.first_end_ns,
        "last_end_ns": waits.last_end_ns,
        "total_ns": waits.total_ns,
    }
    of_met = {
        "wait_ns": waits.wait_ns,
        "profiler_ns": joined(profiler_ns),
        "late_by_ns": waits.late_by_ns,
        "transfer_ns": waits.transfer_ns,
        "transfer_rank_ns": transfer_rank_ns,
        "end_skew_ns": waits.total_ns - waits.wait_ns - transfer_rank_ns,
    }
    of_late = {
        "late_rank": np.array([item.rank.number or 0 for item in collectives.devices])[late],
        "late_device_id": np.array([item.device_id for item in collectives.devices])[late],
        "late_start_ns": joined([_own_starts(sequence) for sequence in every]),
    }
    in_step = ~waits.met | (waits.wait_ns == 0)
    for some, null in ((of_met, ~waits.met), (of_late, in_step)):
        columns |= {
            name: pd.arrays.IntegerArray(values.astype(np.int64), null.copy())
            for name, values in some.items()
        }
    return taken(columns, np.lexsort((columns["sequence_id"], columns["first_start_ns"])))


def coverage_rows(collectives: MatchedCollectives) -> list[dict[str, Any]]:
    """Return one row a device and operation: matched + cut + unmatched + over limit = all."""
    matched_n, cut_n = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for sequence in collectives.sequences:
        for owner, n in zip(sequence.owners, sequence.matched.cut_n, strict=True):
            matched_n[owner, sequence.operation] += len(sequence)
            cut_n[owner, sequence.operation] += n
    rows = []
    for place, device in enumerate(collectives.devices):
        for operation in sorted({lane.operation for lane in device.lanes}):
            lanes = [lane for lane in device.lanes if lane.operation == operation]
            over_n = sum(lane.over_limit_n for lane in lanes)
            clipped_n = sum(lane.cut_n for lane in lanes)
            sent_n = sum(lane.start_ns.size for lane in lanes)
            matched, cut = matched_n[place, operation], cut_n[place, operation]
            rows.append(
                {
                    **of_rank(device.rank),
                    "device_id": device.device_id,
                    "operation": operation,
                    "kernels_n": sent_n + clipped_n + over_n,
                    "total_ns": sum(int((lane.end_ns - lane.start_ns).sum()) for lane in lanes),
                    "matched_n": matched,
                    "cut_n": cut + clipped_n,
                    "unmatched_n": sent_n - matched - cut,
                    "over_limit_n": over_n,
                }
            )
    return rows


def clock_columns(collectives: MatchedCollectives) -> Columns:
    """Return one row a rank that communicates: its clock against that of the root."""
    devices = list({device.rank.key: device for device in collectives.devices}.values())
    first_of = {
        clock: rank for rank, clock in reversed([(d.rank.number, d.clock) for d in devices])
    }
    clocks = [collectives.clocks[device.clock] for device in devices]
    recorded, left_out = collectives.recorded_ns, Counter[RankKey]()
    for sequence in collectives.sequences:
        for owner, left_ns in zip(sequence.owners, sequence.left_out_ns, strict=True):
            left_out[collectives.devices[owner].rank.key] += left_ns
    first_ns: dict[int, int] = {}
    for clock, at_ns in recorded.items():
        root = collectives.clocks[clock].root
        first_ns[root] = min(at_ns, first_ns.get(root, at_ns))
    return {
        "rank": [device.rank.number for device in devices],
        "file": [device.rank.file for device in devices],
        "source": [collectives.sources[device.clock] for device in devices],
        "reference_rank": [first_of.get(fit.root) for fit in clocks],
        "ahead_ns": [collectives.shift_ns[device.clock] for device in devices],
        "rate_ppm": [1e6 * fit.rate for fit in clocks],
        "residual_ns": [fit.residual_ns for fit in clocks],
        "collectives_n": [fit.collectives_n for fit in clocks],
        "recorded_after_ns": [
            recorded[device.clock] - first_ns[fit.root] if device.clock in recorded else None
            for device, fit in zip(devices, clocks, strict=True)
        ],
        "left_out_ns": [left_out[device.rank.key] for device in devices],
    }


def straggler_rows(collectives: MatchedCollectives, delays: Delays) -> list[dict[str, Any]]:
    """Return one row a device and communicator: what it caused and what it suffered."""
    by_owners: dict[tuple[int, ...], list[tuple[Sequenced, tuple[IntArray, ...]]]] = {}
    for sequence, late in zip(collectives.sequences, delays, strict=True):
        if len(sequence):
            by_owners.setdefault(sequence.owners, []).append((sequence, late))
    rows = [row for owners in sorted(by_owners) for row in _members(by_owners[owners], collectives)]
    rows.sort(key=lambda row: (-row["caused_wait_ns"], row["communicator"], row["rank"]))
    return rows


def _members(
    some: Sequence[tuple[Sequenced, tuple[IntArray, ...]]], collectives: MatchedCollectives
) -> list[dict[str, Any]]:
    """Return the rows of one communicator: the sequences of the same devices, whatever they run."""
    starts, ends, late = (
        [np.concatenate(parts) for parts in zip(*columns, strict=True)]
        for columns in (
            [item.start_ns for item, _ in some],
            [item.end_ns for item, _ in some],
            [delays for _, delays in some],
        )
    )
    residual_ns = np.repeat([item.residual_ns for item, _ in some], [len(item) for item, _ in some])
    waits = collective_waits(starts, ends)
    net, net_starts = without_profiler(waits, starts, ends, late)
    members, without = (
        member_waits(some_waits, came, residual_ns)
        for some_waits, came in ((waits, starts), (net, net_starts))
    )
    n, wait_ns = int(waits.met.sum()), sum(member.caused_ns for member in members)
    owners = some[0][0].owners
    rows = []
    for owner, member, less in zip(owners, members, without, strict=True):
        device = collectives.devices[owner]
        rows.append(
            {
                "communicator": communicator(collectives.devices, owners),
                **of_rank(device.rank),
                "device_id": device.device_id,
                "ranks_n": len(owners),
                "collectives_n": n,
                "wait_ns": wait_ns,
                "residual_ns": int(residual_ns.max()),
                "late_n": member.late_n,
                "late_pct": 100.0 * member.late_n / n if n else None,
                "unclear_n": member.unclear_n,
                "caused_wait_ns": member.caused_ns,
                "caused_pct": 100.0 * member.caused_ns / wait_ns if wait_ns else None,
                "late_by_ns": less.late_by_ns,
                "suffered_wait_ns": member.suffered_ns,
                "suffered_profiler_ns": max(member.suffered_ns - less.suffered_ns, 0),
            }
        )
    return rows


def classes(
    wait_ns: IntArray, total_ns: IntArray, doubt_ns: IntArray, met: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """Return the class of each collective, as text.

    Args:
        wait_ns: Shape (n,), waiting of all ranks.
        total_ns: Shape (n,), time of all ranks in it.
        doubt_ns: Shape (n,), by how much the clocks may be wrong, summed over the ranks.
        met: Shape (n,), whether all ranks were in it at once.
    """
    high = 100 * (wait_ns + doubt_ns) > SKEW_PCT * total_ns
    low = 100 * np.maximum(wait_ns - doubt_ns, 0) < TRANSFER_PCT * total_ns
    # What may be either, within the doubt, is neither.
    untold = ~met | (total_ns <= 0) | (high & low)
    skew = 100 * wait_ns > SKEW_PCT * total_ns
    transfer = 100 * wait_ns < TRANSFER_PCT * total_ns
    texts = np.array([INCONCLUSIVE, SKEW, TRANSFER, MIXED], dtype=object)
    return texts[np.select([untold, skew, transfer], [0, 1, 2], default=3)]


def _own_starts(sequence: Sequenced) -> IntArray:
    """Return when the late rank came to each collective, in the clock of its own report."""
    starts = np.zeros_like(sequence.waits.late)
    for place, ahead_ns in enumerate(sequence.ahead_ns):
        selected = sequence.waits.late == place
        starts[selected] = (sequence.start_ns[place] + ahead_ns)[selected]
    return starts
