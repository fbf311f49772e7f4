"""The table `wall` as findings and prices ask for it: spans of GPUs, and what was in them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Any, Final

import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import Evidence, claim
from nsys_llm.report.group_words import group_of_ranks
from nsys_llm.report.records import Tables, records
from nsys_llm.taxonomy.idle_causes import HOST_CAUSES
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.view.text import ranks_words

#: Part of what ranks lose beyond others, and of its own loss, from which a rank is named alone; of
#: the largest loss, from which others are named with it; and how many of them by number. Ours.
_ALONE: Final = 0.6
_ALIKE: Final = 0.25
_MOST_NAMED: Final = 4

#: Rank and CUDA device id.
Gpu = tuple[int, int]


class Walls:
    """The table `wall`; a GPU that it has not has a span of 0."""

    def __init__(self, tables: Mapping[str, pd.DataFrame], side: str | None = None) -> None:
        """Read the table.

        Args:
            tables: Finished tables by name; `wall` is read, for groups `files`.
            side: Of which run, where two are compared.
        """
        self._tables, wall = tables, tables["wall"]
        wall = wall if side is None else wall[wall["run"] == side]
        self._spans: dict[Gpu, int] = {}
        self._times: dict[tuple[int, int, str], dict[str | None, int]] = {}
        self._files: dict[int, str] = {}
        names = ("rank", "device_id", "wall_class", "detail", "time_ns", "span_ns", "file")
        for row in records(wall[list(names)]):
            rank, device, wall_class, detail, time_ns, span_ns, file = row.values()
            self._spans[rank, device] = int(span_ns)
            self._files[rank] = file
            times = self._times.setdefault((rank, device, wall_class), {})
            times[detail] = times.get(detail, 0) + int(time_ns)

    def beside(self, losses_ns: Mapping[Gpu, int], gpu: Gpu) -> dict[Gpu, int]:
        """Return what GPUs of the same group lose, that one among them."""
        group = self.group(gpu[0])
        return {other: ns for other, ns in losses_ns.items() if self.group(other[0]) == group}

    def group(self, rank: int) -> int:
        """Return the group of a rank, see the table `files`."""
        return self._groups.get(rank, 0)

    @cached_property
    def _groups(self) -> Mapping[int, int]:
        return group_of_ranks(self._tables)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Rank and device id of all GPUs, in the table's order."""
        return tuple(self._spans)

    def file(self, rank: int) -> str | None:
        """Return the label of a rank."""
        return self._files.get(rank)

    def span_ns(self, rank: int, device_id: int) -> int:
        """Return the time from a GPU's first operation to its last one, after filters."""
        return self._spans.get((rank, device_id), 0)

    def class_ns(self, rank: int, device_id: int, *wall_classes: str) -> int:
        """Return the time of some classes on a GPU."""
        return sum(
            sum(self._times.get((rank, device_id, name), {}).values()) for name in wall_classes
        )

    def detail_ns(self, gpu: Gpu, wall_class: str, *details: str | None) -> int:
        """Return the time of some details of a class on a GPU."""
        times = self._times.get((*gpu, wall_class), {})
        return sum(times.get(detail, 0) for detail in details)

    def host_idle_ns(self, gpu: Gpu) -> int:
        """Return the idle time of a GPU by host causes; 0 where causes are not known."""
        return self.detail_ns(gpu, IDLE, *HOST_CAUSES)

    @property
    def host_losses_ns(self) -> dict[Gpu, int]:
        """Idle time by host causes of the GPUs whose idle time is known by cause, ns."""
        return {
            (rank, device): self.host_idle_ns((rank, device))
            for (rank, device, name), times in self._times.items()
            if name == IDLE and any(detail is not None for detail in times)
        }


def span_of(tables: Tables, gpu: Gpu) -> Evidence:
    """Return the span of a GPU as evidence: `span_ns`."""
    rank, device_id = gpu
    return claim(tables, "span_ns", "wall", "span_ns", "cell", rank=rank, device_id=device_id)


def share_of(
    tables: Tables, gpu: Gpu, name: str, wall_class: str, *details: str
) -> tuple[Evidence, Evidence, Evidence]:
    """Return the time of a class, or of details of it, as evidence: `{name}`, span and share."""
    rank, device_id = gpu
    where = {"rank": rank, "device_id": device_id, "wall_class": wall_class}
    where |= {"detail": details} if details else {}
    return of_span(tables, gpu, name, "wall", "time_ns", **where)


def of_span(
    tables: Tables, gpu: Gpu, name: str, table: str, column: str, **where: Any
) -> tuple[Evidence, Evidence, Evidence]:
    """Return a time as evidence: `{name}`, the span of a GPU, and its share in that."""
    span = span_of(tables, gpu)
    time, share = (
        claim(tables, field, table, column, "sum", over, **where)
        for field, over in ((name, None), ("share_pct", span))
    )
    return time, span, share


def usual_loss_ns(losses_ns: Mapping[Gpu, int], gpu: Gpu) -> float | None:
    """Return what GPUs of other ranks lose in the median; None without any."""
    rest = [time_ns for (rank, _), time_ns in losses_ns.items() if rank != gpu[0]]
    return median(rest) if rest else None


def late_ranks(losses_ns: Mapping[Gpu, int], gpu: Gpu) -> tuple[int, ...]:
    """Return whose hosts are late, of a GPU that loses most: its rank alone, or all that are alike.

    A rank is named alone if it has 60 % of what ranks lose beyond the median of the others, and
    that is 60 % of what it loses; else those are that lose a quarter as much.
    """
    by_rank: dict[int, int] = {}
    for (rank, _), time_ns in losses_ns.items():
        by_rank[rank] = max(time_ns, by_rank.get(rank, 0))
    ordered = sorted(by_rank.values())
    beyond_ns = {
        rank: max(time_ns - _median_without(ordered, time_ns), 0)
        for rank, time_ns in by_rank.items()
    }
    most_ns = max(sum(beyond_ns.values()), by_rank.get(gpu[0], 0))
    if beyond_ns.get(gpu[0], 0) >= _ALONE * most_ns:
        return (gpu[0],)
    return tuple(sorted(rank for rank, ns in by_rank.items() if ns >= _ALIKE * by_rank[gpu[0]]))


def _median_without(ordered_ns: Sequence[int], time_ns: int) -> float:
    """Return the median of times, ascending, but one of them; 0 of no others."""
    at, n = bisect_left(ordered_ns, time_ns), len(ordered_ns) - 1
    middle = (ordered_ns[row + (row >= at)] for row in ((n - 1) // 2, n // 2) if n)
    return sum(middle) / 2


def host_cause(losses_ns: Mapping[Gpu, int], gpu: Gpu) -> Cause:
    """Return whose host a GPU waits for: its rank's, where that is late alone."""
    others = usual_loss_ns(losses_ns, gpu) is not None
    is_alone = others and late_ranks(losses_ns, gpu) == (gpu[0],)
    return Cause("host", rank=gpu[0] if is_alone else None)


def host_subject(
    tables: Tables, losses_ns: Mapping[Gpu, int], gpu: Gpu
) -> tuple[dict[str, str], tuple[Evidence, ...]]:
    """Return how a title names late hosts, and the GPU of the worst; and the counts in that."""
    late, every = late_ranks(losses_ns, gpu), tuple(sorted({rank for rank, _ in losses_ns}))
    if len(late) == 1:
        whose, who = (f"{rank} {gpu[0]}'s host" for rank in ("Rank", "rank"))
        return {"whose": whose, "who": who, "hosts": f"{whose}:", "its": "its"}, ()
    names = ranks_words(late)
    if len(late) > _MOST_NAMED:
        names = f"{len(late)} of {len(every)} ranks"
    if late == every:
        names = "both ranks" if len(every) == 2 else f"all {len(every)} ranks"
    said = {"whose": f"On {names} the host", "who": f"on {names} the host"}
    said |= {"hosts": f"Hosts of {names}, the worst", "its": "the worst"}
    counts = (
        claim(tables, name, "wall", "rank", "distinct", rank=ranks)
        for name, ranks in (("late_n", late), ("every_n", every))
    )
    return said, tuple(counts)
