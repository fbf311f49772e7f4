"""Tables of collectives: sequences by communicator, single collectives, coverage, clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.job.collectives.matched import (
    Device,
    MatchedCollectives,
    Sequenced,
    communicator,
)
from nsys_llm.job.collectives.profiler import profiler_waits_ns, without_profiler
from nsys_llm.job.collectives.stages import find_stages
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, percent
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


def sequence_rows(collectives: MatchedCollectives) -> list[dict[str, Any]]:
    """Return one row a sequence of collectives that at least two ranks have."""
    stages = find_stages(collectives)
    return [
        {
            **_sequence(number, sequence, collectives),
            "staged": id(sequence) in stages.staged | stages.closing,
        }
        for number, sequence in enumerate(collectives.sequences)
    ]


def collective_columns(
    collectives: MatchedCollectives, delays: Sequence[tuple[IntArray, ...]]
) -> Columns:
    """Return one row a collective that all ranks of its communicator have, in order of time.

    Args:
        delays: See `nsys_llm.job.collectives.profiler.delays_ns`.
    """
    parts = [
        _collectives(number, sequence, collectives, late)
        for number, (sequence, late) in enumerate(zip(collectives.sequences, delays, strict=True))
    ]
    if not parts:
        return {}
    columns = {name: _together([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((columns["sequence_id"], columns["first_start_ns"]))
    return {name: values[order] for name, values in columns.items()}


def coverage_rows(collectives: MatchedCollectives) -> list[dict[str, Any]]:
    """Return one row a device and operation: matched + cut + unmatched + over limit = all."""
    matched_n, cut_n = _by_device_and_operation(collectives)
    rows = []
    for place, device in enumerate(collectives.devices):
        for operation in sorted({lane.operation for lane in device.lanes}):
            lanes = [lane for lane in device.lanes if lane.operation == operation]
            over_n = sum(lane.over_limit_n for lane in lanes)
            clipped_n = sum(lane.cut_n for lane in lanes)
            sent_n = sum(lane.start_ns.size for lane in lanes)
            matched = matched_n.get((place, operation), 0)
            cut = cut_n.get((place, operation), 0)
            rows.append(
                {
                    "rank": device.rank.number,
                    "file": device.rank.file,
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
    recorded, left_out = collectives.recorded_ns, dict.fromkeys(map(_key, devices), 0)
    for sequence in collectives.sequences:
        for owner, left_ns in zip(sequence.owners, sequence.left_out_ns, strict=True):
            left_out[_key(collectives.devices[owner])] += left_ns
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
        "left_out_ns": [left_out[_key(device)] for device in devices],
    }


def _key(device: Device) -> RankKey:
    return device.rank.key


def _sequence(number: int, sequence: Sequenced, collectives: MatchedCollectives) -> dict[str, Any]:
    waits, ranks_n = sequence.waits, len(sequence.owners)
    met = waits.met
    total_ns, wait_ns = int(waits.total_ns[met].sum()), int(waits.wait_ns[met].sum())
    transfer_ns = int(waits.transfer_ns[met].sum())
    met_n = int(met.sum())
    doubt_ns = met_n * (ranks_n - 1) * sequence.residual_ns
    wait, total, doubt = (np.array([value]) for value in (wait_ns, total_ns, doubt_ns))
    return {
        "sequence_id": number,
        "communicator": communicator(collectives.devices, sequence.owners),
        "operation": sequence.operation,
        "kernel": sequence.kernel,
        "ranks_n": ranks_n,
        "collectives_n": len(sequence),
        "overlap_n": met_n,
        "confidence": sequence.confidence,
        "class": str(classes(wait, total, doubt, np.array([met_n > 0]))[0]),
        "total_ns": total_ns,
        "wait_ns": wait_ns,
        "wait_pct": float(percent(wait, total_ns)[0]),
        "transfer_ns": transfer_ns,
        "transfer_rank_ns": transfer_ns * ranks_n,
        "end_skew_ns": total_ns - wait_ns - transfer_ns * ranks_n,
        "residual_ns": sequence.residual_ns,
    }


def _collectives(
    number: int, sequence: Sequenced, collectives: MatchedCollectives, late_ns: Sequence[IntArray]
) -> Columns:
    """Return the collectives of one sequence; what needs an overlap is null without one."""
    waits, ranks_n, n = sequence.waits, len(sequence.owners), len(sequence)
    late, unmet = waits.late, ~waits.met
    rank = np.array([collectives.devices[owner].rank.number or 0 for owner in sequence.owners])[
        late
    ]
    device = np.array([collectives.devices[owner].device_id for owner in sequence.owners])[late]
    net, _ = without_profiler(waits, sequence.start_ns, sequence.end_ns, late_ns)
    doubt = np.full(n, (ranks_n - 1) * sequence.residual_ns)
    transfer_rank_ns = waits.transfer_ns * ranks_n
    in_step = unmet | (waits.wait_ns == 0)
    return {
        "sequence_id": np.full(n, number),
        "communicator": np.full(
            n, communicator(collectives.devices, sequence.owners), dtype=object
        ),
        "operation": np.full(n, sequence.operation, dtype=object),
        "ordinal": np.arange(n),
        "ranks_n": np.full(n, ranks_n),
        "overlap": waits.met,
        "class": classes(waits.wait_ns, waits.total_ns, doubt, waits.met),
        "first_start_ns": waits.first_start_ns,
        "last_start_ns": waits.last_start_ns,
        "first_end_ns": waits.first_end_ns,
        "last_end_ns": waits.last_end_ns,
        "total_ns": waits.total_ns,
        "wait_ns": _nullable(waits.wait_ns, unmet),
        "profiler_ns": _nullable(profiler_waits_ns(waits, net), unmet),
        "late_by_ns": _nullable(waits.late_by_ns, unmet),
        "transfer_ns": _nullable(waits.transfer_ns, unmet),
        "transfer_rank_ns": _nullable(transfer_rank_ns, unmet),
        "end_skew_ns": _nullable(waits.total_ns - waits.wait_ns - transfer_rank_ns, unmet),
        "late_rank": _nullable(rank, in_step),
        "late_device_id": _nullable(device, in_step),
        "late_start_ns": _nullable(_own_starts(sequence), in_step),
    }


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


def _by_device_and_operation(
    collectives: MatchedCollectives,
) -> tuple[dict[tuple[int, str], int], dict[tuple[int, str], int]]:
    matched_n: dict[tuple[int, str], int] = {}
    cut_n: dict[tuple[int, str], int] = {}
    for sequence in collectives.sequences:
        for owner, cut in zip(sequence.owners, sequence.matched.cut_n, strict=True):
            key = owner, sequence.operation
            matched_n[key] = matched_n.get(key, 0) + len(sequence)
            cut_n[key] = cut_n.get(key, 0) + cut
    return matched_n, cut_n


def _nullable(values: npt.NDArray[Any], null: npt.NDArray[np.bool_]) -> Any:
    return pd.arrays.IntegerArray(values.astype(np.int64), null.copy())


def _together(parts: Sequence[Any]) -> Any:
    if parts and isinstance(parts[0], pd.arrays.IntegerArray):
        return pd.concat([pd.Series(part) for part in parts], ignore_index=True).array
    return joined(parts)
