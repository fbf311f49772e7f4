"""The table of who made whom wait: ranks by communicator.

Who of them is late beyond chance is in `rank_verdicts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nsys_llm.analyses.collectives.matched import MatchedCollectives, Sequenced, communicator
from nsys_llm.analyses.collectives.profiler import profiler_waits_ns, without_profiler
from nsys_llm.analyses.collectives.waits import Waits, collective_waits, member_waits
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns

from .collectives import declared


@dataclass(frozen=True)
class _Group:
    """All collectives of one communicator, whatever their kernel, in order of time.

    Attributes:
        owners: Devices that take part, by position.
        times: For each of them, shape (4, collectives): start and end on the clock of the root, its
            report's own clock minus the root's, and how late it came because of the profiler; see
            `nsys_llm.analyses.collectives.profiler.delays_ns`.
        residual_ns: Shape (collectives,).
    """

    owners: tuple[int, ...]
    times: tuple[IntArray, ...]
    residual_ns: IntArray

    def each(self, row: int) -> tuple[IntArray, ...]:
        """Return a row of the times of all."""
        return tuple(times[row] for times in self.times)

    @cached_property
    def waits(self) -> Waits:
        return collective_waits(self.each(0), self.each(1))

    def shared(self, part_ns: IntArray, place: int) -> IntArray:
        """Return one device's part of what the last ones caused in each collective."""
        each, odd = np.divmod(part_ns, self.waits.late_n)
        share = each + np.where(self.waits.late == place, odd, 0)
        return np.where(self.times[place][0] == self.waits.last_start_ns, share, 0)


def straggler_columns(
    collectives: MatchedCollectives, delays: Sequence[tuple[IntArray, ...]]
) -> Columns:
    """Return one row a device and communicator: what it caused and what it suffered.

    Args:
        delays: See `nsys_llm.analyses.collectives.profiler.delays_ns`.
    """
    rows = [
        row for group in _groups(collectives, delays) for row in _group_rows(group, collectives)
    ]
    rows.sort(key=lambda row: (-row["caused_wait_ns"], row["communicator"], row["rank"]))
    return {name: [row[name] for row in rows] for name in declared("stragglers")}


def _device(collectives: MatchedCollectives, group: _Group, owner: int) -> dict[str, Any]:
    device = collectives.devices[owner]
    return {
        "communicator": communicator(collectives.devices, group.owners),
        "rank": device.rank.number,
        "file": device.rank.file,
        "device_id": device.device_id,
    }


def _groups(
    collectives: MatchedCollectives, delays: Sequence[tuple[IntArray, ...]]
) -> Iterator[_Group]:
    """Yield communicators: sequences of the same devices are one, as far as a trace can tell."""
    by_owners: dict[tuple[int, ...], list[tuple[Sequenced, tuple[IntArray, ...]]]] = {}
    for sequence, late in zip(collectives.sequences, delays, strict=True):
        if len(sequence):
            by_owners.setdefault(sequence.owners, []).append((sequence, late))
    for owners, both in sorted(by_owners.items(), key=lambda item: item[0]):
        firsts = np.concatenate([sequence.waits.first_start_ns for sequence, _ in both])
        residual_ns = np.repeat(
            [item.residual_ns for item, _ in both], [len(item) for item, _ in both]
        )
        order = np.argsort(firsts, kind="stable")
        columns = [
            zip(item.start_ns, item.end_ns, item.ahead_ns, late, strict=True) for item, late in both
        ]
        times = [
            np.concatenate([np.stack(some) for some in parts], axis=1)[:, order]
            for parts in zip(*columns, strict=True)
        ]
        yield _Group(owners, tuple(times), residual_ns[order])


def _group_rows(group: _Group, collectives: MatchedCollectives) -> list[dict[str, Any]]:
    waits, starts = group.waits, group.each(0)
    members = member_waits(waits, starts, group.residual_ns)
    net, net_starts = without_profiler(waits, starts, group.each(1), group.each(3))
    without = member_waits(net, net_starts, group.residual_ns)
    profiler_ns = profiler_waits_ns(waits, net)
    n, wait_ns = int(waits.met.sum()), sum(member.caused_ns for member in members)
    rows = []
    for place, (owner, member, less) in enumerate(zip(group.owners, members, without, strict=True)):
        late_ns = member.lateness_ns
        rows.append(
            {
                **_device(collectives, group, owner),
                "ranks_n": len(group.owners),
                "collectives_n": n,
                "wait_ns": wait_ns,
                "residual_ns": int(group.residual_ns.max()),
                "late_n": member.late_n,
                "late_pct": 100.0 * member.late_n / n if n else None,
                "unclear_n": member.unclear_n,
                "caused_wait_ns": member.caused_ns,
                "caused_pct": 100.0 * member.caused_ns / wait_ns if wait_ns else None,
                "profiler_ns": int(group.shared(profiler_ns, place)[waits.met].sum()),
                "late_by_ns": less.late_by_ns,
                "suffered_wait_ns": member.suffered_ns,
                "suffered_profiler_ns": max(member.suffered_ns - less.suffered_ns, 0),
                "lateness_p50_ns": float(np.median(late_ns)) if late_ns.size else None,
                **_worst(less.worst, net, group, place),
            }
        )
    return rows


def _worst(worst: int, waits: Waits, group: _Group, place: int) -> dict[str, Any]:
    """Return the collective in which it was late by most without the profiler, in its own clock."""
    if worst < 0:
        return dict.fromkeys(("worst_late_by_ns", "window_start_ns", "window_end_ns"))
    _, end_ns, ahead_ns, _ = group.times[place][:, worst].tolist()
    return {
        "worst_late_by_ns": int(waits.late_by_ns[worst]),
        # From when the others were there, so that the window shows what it did instead.
        "window_start_ns": int(waits.first_start_ns[worst]) + ahead_ns,
        "window_end_ns": end_ns + ahead_ns,
    }
