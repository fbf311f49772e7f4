"""Why a rank comes last, its GPU, its work or its host, and what a fix gains. From tables alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from nsys_llm.report.findings import Evidence, cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.wall_classes import COMMUNICATION
from nsys_llm.view.text import format_ns, format_percent

from .paces import Pace, pace_of

#: Part of a rank's lateness that explains it: idle time of its GPU beyond the others', or time in
#: kernels; ours.
_EXPLAINS: Final = 0.5
_PLACE: Final = ("rank", "device_id")
_GPU: Final = "the clock, power limit and temperature of its GPU, and another process on it"
_ANYTHING: Final = (
    "what it runs before its collectives while the others wait: a copy, a synchronization, a host "
    "that launches late"
)


@dataclass(frozen=True)
class Reason:
    """Why a rank is late.

    Attributes:
        title: What stands after `Rank 2 is a straggler: `.
        details: A sentence with its numbers.
        look: What to look at.
        gain_ns: What a fix takes away on the GPU of the late rank.
        evidence: Cells that title and details name.
        numbers: Other numbers that they name.
        kernel: Where it is the work of one.
    """

    title: str
    details: str
    look: str
    gain_ns: float
    evidence: tuple[Evidence, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    kernel: str | None = None


def late_reason(tables: Tables, walls: Walls, row: Record) -> Reason:
    """Return what the tables show about a rank that is late.

    Args:
        tables: tail_ranks, rank_tails and stragglers.
        walls: Of them.
        row: Its row of stragglers.
    """
    pace, late_ns = pace_of(tables, row), int(row["late_by_ns"])
    # Nobody gains more than somebody waits, whatever the rank does longer.
    most_ns = _longest_communication_ns(tables, walls, row)
    if pace.uneven:
        return _uneven(row, pace, most_ns)
    if pace.slow:
        return _slow(row, pace, most_ns)
    host = _late_host(tables, row)
    if host is not None:
        return host
    if pace.excess_ns >= _EXPLAINS * late_ns > 0:
        return _slow_at_times(row, pace, most_ns)
    return _more_work(tables, row, most_ns) or _unknown(row)


def _longest_communication_ns(tables: Tables, walls: Walls, row: Record) -> int:
    members = tables["stragglers"]
    members = members[members["communicator"] == row["communicator"]]
    return max(
        walls.class_ns(record["rank"], record["device_id"], COMMUNICATION)
        for record in records(members)
        if (record["rank"], record["device_id"]) != (row["rank"], row["device_id"])
    )


def _uneven(row: Record, pace: Pace, most_ns: int) -> Reason:
    name, times = pace.uneven[0]
    # Spread over all ranks, its own share of the rest comes back.
    even_ns = pace.uneven_ns * (row["ranks_n"] - 1) / row["ranks_n"]
    return Reason(
        f"it has more work in {pace.words()}",
        f"{pace.words()} takes {times:.2f} times as long as on the other ranks, "
        f"{format_ns(pace.uneven_ns)} more; its other kernels are as fast as theirs.",
        "what decides how much that kernel has to do (experts that get most tokens, the longer "
        "sequences of a batch), and spread it over the ranks",
        min(even_ns, most_ns),
        numbers={
            "times": times,
            "uneven_ns": pace.uneven_ns,
            "more_kernels_n": len(pace.uneven) - 1,
        },
        kernel=name,
    )


def _slow(row: Record, pace: Pace, most_ns: int) -> Reason:
    return Reason(
        f"compute {format_percent(pace.more_pct)} longer",
        f"In the same kernels it takes {format_ns(pace.excess_ns)} more than the median of the "
        "other ranks.",
        _GPU,
        min(pace.excess_ns, most_ns),
        numbers={"more_pct": pace.more_pct, "excess_ns": pace.excess_ns},
    )


def _slow_at_times(row: Record, pace: Pace, most_ns: int) -> Reason:
    return Reason(
        f"kernels {format_ns(pace.excess_ns)} longer, not throughout",
        "Their medians are those of the other ranks.",
        f"{_GPU}, in the window below",
        min(pace.excess_ns, most_ns),
        numbers={"excess_ns": pace.excess_ns},
    )


def _late_host(tables: Tables, row: Record) -> Reason | None:
    """Return the reason where the GPU of the late rank has nothing to run while the others wait."""
    late_device, others = _devices(tables, row)
    if late_device is None or not others or not late_device["window_ns"]:
        return None
    usual = median(other["idle_ns"] / other["window_ns"] for other in others)
    more_ns = late_device["idle_ns"] - usual * late_device["window_ns"]
    work_ns = median(other["total_ns"] for other in others)
    late_ns = int(row["late_by_ns"])
    if late_device["total_ns"] - work_ns >= _EXPLAINS * late_ns or more_ns < _EXPLAINS * late_ns:
        return None
    idle_pct = 100.0 * late_device["idle_ns"] / late_device["window_ns"]
    return Reason(
        "its host is late",
        f"Its GPU is idle for {format_percent(idle_pct)} of its window, "
        f"{format_percent(100.0 * usual)} on the median of the others: {format_ns(more_ns)} more, "
        "while its kernels are as fast as theirs.",
        "what its host does while its GPU is idle (idle_gaps lists the causes): cores shared with "
        "other threads, data loading, garbage collection, synchronization",
        min(late_ns, more_ns),
        numbers={"idle_pct": idle_pct, "usual_idle_pct": 100.0 * usual, "more_idle_ns": more_ns},
    )


def _more_work(tables: Tables, row: Record, most_ns: int) -> Reason | None:
    late_device, others = _devices(tables, row)
    if late_device is None or not others:
        return None
    usual_ns = median(other["total_ns"] for other in others)
    more_ns = late_device["total_ns"] - usual_ns
    if more_ns < _EXPLAINS * int(row["late_by_ns"]) or more_ns <= 0:
        return None
    even_ns = more_ns * (row["ranks_n"] - 1) / row["ranks_n"]
    return Reason(
        f"kernels for {format_ns(more_ns)} more",
        f"Kernels other than communication take {format_ns(late_device['total_ns'])} on it and "
        f"{format_ns(usual_ns)} on the median of the others.",
        "which kernels only this rank launches, or more often than the others (`rank_tails`), and "
        "spread them over the ranks",
        min(even_ns, most_ns),
        cells("tail_ranks", late_device, _PLACE, ("total_ns",)),
        {"more_ns": more_ns, "usual_ns": usual_ns},
    )


def _unknown(row: Record) -> Reason:
    late_ns = int(row["late_by_ns"])
    return Reason(
        f"it comes last by {format_ns(late_ns)} in all",
        "Neither longer kernels nor an idle GPU explain it.",
        _ANYTHING,
        late_ns,
    )


def _devices(tables: Tables, row: Record) -> tuple[Record | None, list[Record]]:
    """Return the row of tail_ranks of a device, and those of the others that ran anything."""
    devices = records(tables["tail_ranks"])
    place = (row["rank"], row["device_id"])
    late_device = next(
        (device for device in devices if (device["rank"], device["device_id"]) == place), None
    )
    return late_device, [
        device for device in devices if device is not late_device and device["window_ns"]
    ]
