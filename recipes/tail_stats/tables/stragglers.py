"""Tables of who made whom wait: ranks by communicator, and their waiting over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.collectives.matched import MatchedCollectives, Sequenced, communicator
from nsys_llm.analyses.collectives.profiler import profiler_waits_ns, without_profiler
from nsys_llm.analyses.collectives.waits import (
    THIRDS,
    MemberWaits,
    Waits,
    collective_waits,
    member_waits,
)
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, percent
from nsys_llm.view.text import format_ns

from .collective_classes import third_sizes
from .collectives import declared

#: Parts of the run, as columns call them.
_THIRDS: Final = ("first", "second", "last")
#: Parts of the time in which there are collectives; a heat map of them stays readable.
_BINS: Final = 40


@dataclass(frozen=True)
class _Group:
    """All collectives of one communicator, whatever their kernel, in order of time.

    Attributes:
        owners: Devices that take part, by position.
        start_ns: For each of them, shape (collectives,), clock of the root.
        end_ns: Likewise.
        ahead_ns: For each of them, its report's own clock minus the root's; shape (collectives,).
        residual_ns: Shape (collectives,).
        delay_ns: For each of them, how late it came because of the profiler; see
            `nsys_llm.analyses.collectives.profiler.delays_ns`.
    """

    owners: tuple[int, ...]
    start_ns: tuple[IntArray, ...]
    end_ns: tuple[IntArray, ...]
    ahead_ns: tuple[IntArray, ...]
    residual_ns: IntArray
    delay_ns: tuple[IntArray, ...]

    @property
    def waits(self) -> Waits:
        return collective_waits(self.start_ns, self.end_ns)


def straggler_columns(
    collectives: MatchedCollectives, delays: Sequence[tuple[IntArray, ...]]
) -> Columns:
    """Return one row a device and communicator: what it caused and what it suffered.

    Args:
        collectives: All collectives.
        delays: See `nsys_llm.analyses.collectives.profiler.delays_ns`.
    """
    rows = [
        row for group in _groups(collectives, delays) for row in _group_rows(group, collectives)
    ]
    rows.sort(key=lambda row: (-row["caused_wait_ns"], row["communicator"], row["rank"]))
    return {name: [row[name] for row in rows] for name in declared("stragglers")}


def wait_map_columns(collectives: MatchedCollectives) -> Columns:
    """Return waiting by device, communicator and part of the run."""
    still = [tuple(map(np.zeros_like, sequence.start_ns)) for sequence in collectives.sequences]
    groups = list(_groups(collectives, still))
    waits = [group.waits for group in groups]
    met = [wait.first_start_ns[wait.met] for wait in waits]
    every = np.concatenate(met) if met else np.empty(0, dtype=np.int64)
    if not every.size:
        return {name: [] for name in declared("wait_map")}
    first_ns = int(every.min())
    width_ns = max(-(-(int(every.max()) - first_ns + 1) // _BINS), 1)
    bins_n = (int(every.max()) - first_ns) // width_ns + 1
    starts = first_ns + width_ns * np.arange(bins_n)
    since = [format_ns(float(start - first_ns)) for start in starts]
    rows = []
    for group, wait in zip(groups, waits, strict=True):
        part = (wait.first_start_ns[wait.met] - first_ns) // width_ns
        for place, owner in enumerate(group.owners):
            suffered = (wait.last_start_ns - group.start_ns[place])[wait.met]
            caused = _caused(wait, group, place)[wait.met]
            rows.append(
                {
                    "communicator": np.full(
                        bins_n, communicator(collectives.devices, group.owners)
                    ),
                    "rank": np.full(bins_n, collectives.devices[owner].rank.number),
                    "file": np.full(bins_n, collectives.devices[owner].rank.file),
                    "device_id": np.full(bins_n, collectives.devices[owner].device_id),
                    "bin_start_ns": starts,
                    "since_first": np.array(since),
                    "caused_wait_ns": summed(part, caused, bins_n),
                    "suffered_wait_ns": summed(part, suffered, bins_n),
                }
            )
    return {
        name: np.concatenate([row[name].astype(_dtype(name)) for row in rows])
        for name in declared("wait_map")
    }


_TEXTS: Final = frozenset({"communicator", "file", "since_first"})


def _dtype(name: str) -> type:
    return object if name in _TEXTS else np.int64


def _groups(
    collectives: MatchedCollectives, delays: Sequence[tuple[IntArray, ...]]
) -> Iterator[_Group]:
    """Yield communicators: sequences of the same devices are one, as far as a trace can tell."""
    by_owners: dict[tuple[int, ...], list[tuple[Sequenced, tuple[IntArray, ...]]]] = {}
    for sequence, late in zip(collectives.sequences, delays, strict=True):
        if len(sequence):
            by_owners.setdefault(sequence.owners, []).append((sequence, late))
    for owners, both in sorted(by_owners.items(), key=lambda item: item[0]):
        sequences = [sequence for sequence, _ in both]
        firsts = np.concatenate([item.waits.first_start_ns for item in sequences])
        order = np.argsort(firsts, kind="stable")
        places = range(len(owners))
        yield _Group(
            owners,
            tuple(
                np.concatenate([item.start_ns[place] for item in sequences])[order]
                for place in places
            ),
            tuple(
                np.concatenate([item.end_ns[place] for item in sequences])[order]
                for place in places
            ),
            tuple(
                np.concatenate([item.ahead_ns[place] for item in sequences])[order]
                for place in places
            ),
            np.concatenate([np.full(len(item), item.residual_ns) for item in sequences])[order],
            tuple(np.concatenate([late[place] for _, late in both])[order] for place in places),
        )


def _group_rows(group: _Group, collectives: MatchedCollectives) -> list[dict[str, Any]]:
    waits = group.waits
    members = member_waits(waits, group.start_ns, group.residual_ns)
    net, net_starts = without_profiler(waits, group.start_ns, group.end_ns, group.delay_ns)
    judged = member_waits(net, net_starts, group.residual_ns)
    profiler_ns = profiler_waits_ns(waits, net)
    met = waits.met
    wait_ns = sum((member.caused_ns for member in members), np.zeros(THIRDS, dtype=np.int64))
    common = {
        "communicator": communicator(collectives.devices, group.owners),
        "ranks_n": len(group.owners),
        "collectives_n": int(met.sum()),
        "wait_ns": int(wait_ns.sum()),
        "span_ns": int(waits.last_end_ns.max() - waits.first_start_ns.min()),
        "residual_ns": int(group.residual_ns.max()),
    }
    return [
        {
            **common,
            "rank": collectives.devices[owner].rank.number,
            "file": collectives.devices[owner].rank.file,
            "device_id": collectives.devices[owner].device_id,
            **_member(member, common, wait_ns),
            "profiler_ns": int(_shared(profiler_ns, waits, group, place)[met].sum()),
            "late_by_ns": selected.avoidable_ns // (len(group.owners) - 1),
            "suffered_profiler_ns": max(member.suffered_ns - selected.suffered_ns, 0),
            **_worst(selected, net, group, place),
        }
        for place, (owner, member, selected) in enumerate(
            zip(group.owners, members, judged, strict=True)
        )
    ]


def _member(member: MemberWaits, common: dict[str, Any], wait_ns: IntArray) -> dict[str, Any]:
    n = common["collectives_n"]
    caused_ns, late_n = int(member.caused_ns.sum()), int(member.late_n.sum())
    late_pct = percent(member.late_n, third_sizes(n))
    caused_pct = percent(member.caused_ns, wait_ns)
    known = member.lateness_ns.size > 0
    return {
        "late_n": late_n,
        "late_pct": 100.0 * late_n / n if n else None,
        "unclear_n": member.unclear_n,
        "caused_wait_ns": caused_ns,
        "caused_pct": 100.0 * caused_ns / common["wait_ns"] if common["wait_ns"] else None,
        "avoidable_wait_ns": member.avoidable_ns,
        "suffered_wait_ns": member.suffered_ns,
        "lateness_p50_ns": float(np.median(member.lateness_ns)) if known else None,
        "lateness_max_ns": int(member.lateness_ns.max()) if known else None,
        **{f"late_{third}_third_pct": late_pct[at] for at, third in enumerate(_THIRDS)},
        **{f"caused_{third}_third_pct": caused_pct[at] for at, third in enumerate(_THIRDS)},
    }


def _worst(member: MemberWaits, waits: Waits, group: _Group, place: int) -> dict[str, Any]:
    """Return the collective in which it was late by most without the profiler, in its own clock."""
    if member.worst < 0:
        return dict.fromkeys(("worst_late_by_ns", "window_start_ns", "window_end_ns"))
    ahead_ns = int(group.ahead_ns[place][member.worst])
    return {
        "worst_late_by_ns": int(waits.late_by_ns[member.worst]),
        # From when the others were there, so that the window shows what it did instead.
        "window_start_ns": int(waits.first_start_ns[member.worst]) + ahead_ns,
        "window_end_ns": int(group.end_ns[place][member.worst]) + ahead_ns,
    }


def _caused(waits: Waits, group: _Group, place: int) -> IntArray:
    """Return the waiting that one rank caused in each collective."""
    return _shared(waits.wait_ns, waits, group, place)


def _shared(part_ns: IntArray, waits: Waits, group: _Group, place: int) -> IntArray:
    """Return one rank's part of what the last ranks caused in each collective."""
    each, odd = np.divmod(part_ns, waits.late_n)
    share = each + np.where(waits.late == place, odd, 0)
    return np.where(group.start_ns[place] == waits.last_start_ns, share, 0)
