"""The table of who made whom wait: ranks by communicator.

Who of them is late beyond chance is in `rank_verdicts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nsys_llm.job.collectives.matched import MatchedCollectives, Sequenced, communicator
from nsys_llm.job.collectives.profiler import without_profiler
from nsys_llm.job.collectives.waits import collective_waits, member_waits
from nsys_llm.numeric.intervals import IntArray

#: A sequence, and how late each member came to it because of the profiler.
_Delayed = tuple[Sequenced, tuple[IntArray, ...]]


def straggler_rows(
    collectives: MatchedCollectives, delays: Sequence[tuple[IntArray, ...]]
) -> list[dict[str, Any]]:
    """Return one row a device and communicator: what it caused and what it suffered.

    Args:
        delays: See `nsys_llm.job.collectives.profiler.delays_ns`.
    """
    by_owners: dict[tuple[int, ...], list[_Delayed]] = {}
    for sequence, late in zip(collectives.sequences, delays, strict=True):
        if len(sequence):
            by_owners.setdefault(sequence.owners, []).append((sequence, late))
    by_member = (_rows(by_owners[owners], collectives) for owners in sorted(by_owners))
    rows = [row for some in by_member for row in some]
    rows.sort(key=lambda row: (-row["caused_wait_ns"], row["communicator"], row["rank"]))
    return rows


def _rows(some: Sequence[_Delayed], collectives: MatchedCollectives) -> list[dict[str, Any]]:
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
                "rank": device.rank.number,
                "file": device.rank.file,
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
