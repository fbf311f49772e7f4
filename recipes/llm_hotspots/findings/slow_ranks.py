"""Findings on ranks and machines that compute longer than the others. Reads tables only.

What making them as fast as the others gains is the time by which their GPU computes longer, on the
clock: kernels that run side by side count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Final

import pandas as pd

from nsys_llm.analyses.device.longer_compute import longer_pct
from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Record, Tables, records, window_of
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.wall_classes import COMPUTE as COMPUTES
from nsys_llm.view.text import quoted, shortened

from ..tables.balance import COMPUTE
from .launch_split import (
    LaunchSplit,
    compute_kernels,
    hosts_beyond_chance,
    mix_words,
    split_beyond_chance,
    split_host,
    split_words,
)
from .longer_kernels import (
    host_words,
    longer_kernels,
    longer_on_host,
    more_words,
    named,
    slow_words,
)
from .texts import RULES, SAME_LAUNCHES, SLOW_RATIO

#: A rank with less compute than this share of the most only looks on, and is not compared; ours.
_ONLOOKER: Final = 0.01


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run, as tables have them."""

    processes: Sequence[Record]
    imbalance: Sequence[Record]
    hosts: Sequence[Record]
    kernels: pd.DataFrame
    walls: Walls

    @classmethod
    def of(cls, tables: Tables) -> Ranks:
        """Read the tables processes, imbalance, host_imbalance, rank_kernels and wall."""
        read = {name: records(tables[name]) for name in ("processes", "imbalance")}
        hosts, kernels = records(tables["host_imbalance"]), tables["rank_kernels"]
        return cls(**read, hosts=hosts, kernels=kernels, walls=Walls(tables))

    def busiest(self, rank: int) -> int | None:
        """Return the device of a rank that computes most; None where none is known."""
        return self._busiest.get(rank)

    @cached_property
    def _busiest(self) -> dict[int, int]:
        """The device of each rank that computes most; of equal ones the first."""
        busiest: dict[int, int] = {}
        for rank, device in self.walls.gpus:
            most_ns = self.walls.class_ns(rank, busiest.get(rank, -1), COMPUTES)
            if rank not in busiest or self.walls.class_ns(rank, device, COMPUTES) > most_ns:
                busiest[rank] = device
        return busiest

    def computing_ns(self, rank: int) -> int:
        """Return how long the busiest device of a rank computes."""
        device = self.busiest(rank)
        return 0 if device is None else self.walls.class_ns(rank, device, COMPUTES)


def slow_findings(ranks: Ranks) -> list[Finding]:
    """Return the finding on the machine or the rank that computes longest.

    A slow rank of a slow machine is told only where it is slow among the ranks of that machine too.
    """
    machine, rank = _slow_host(ranks), _slow_rank(ranks)
    if machine is None or rank is None:
        return [item for item in (machine, rank) if item is not None]
    here = [row for row in ranks.processes if row["host"] == machine.name]
    times = {row["rank"]: row["compute_total_ns"] for row in here}
    usual_ns = median(times.values())
    apart = rank.rank not in times or times[rank.rank] >= SLOW_RATIO * usual_ns
    return [machine, rank] if apart else [machine]


def _slow_rank(ranks: Ranks) -> Finding | None:
    """Return the finding on the rank that computes longest."""
    most_ns = max((row["compute_total_ns"] for row in ranks.processes), default=0)
    working = [row for row in ranks.processes if row["compute_total_ns"] > _ONLOOKER * most_ns]
    if len(working) < 2:
        return None
    worst = max(working, key=lambda row: row["compute_total_ns"])
    others = [row for row in working if row is not worst]
    p50_ns = median(row["compute_total_ns"] for row in others)
    typical_n = median(row["launches_n"] for row in others)
    same = abs(worst["launches_n"] - typical_n) <= SAME_LAUNCHES * typical_n
    density, usual = _density(worst), median(_density(row) for row in others)
    # More launches in a longer capture is no more work.
    if worst["compute_total_ns"] < SLOW_RATIO * p50_ns or not (
        same or density >= SLOW_RATIO * usual
    ):
        return None
    split = split_beyond_chance(ranks.kernels, ranks.imbalance, worst, working)
    if split is None:
        return None
    less_ns = ranks.computing_ns(worst["rank"]) - median(
        ranks.computing_ns(row["rank"]) for row in others
    )
    if not same:
        less_ns = min(less_ns, (density - usual) * worst["window_ns"])
    return _told(ranks, worst, others, split, less_ns, same=same)


def _told(
    ranks: Ranks,
    worst: Record,
    others: Sequence[Record],
    split: LaunchSplit,
    less_ns: float,
    *,
    same: bool,
) -> Finding:
    """Return the finding on a slow rank in words."""
    numbers, rank = Numbers(), worst["rank"]
    usual = "the median rank" if len(others) > 1 else "the other rank"
    p50_ns = median(row["compute_total_ns"] for row in others)
    longer = longer_kernels(ranks.imbalance, rank) if same and not split.mixed else []
    counts = (
        f"{numbers.count('launches_n', worst['launches_n'])} launches, "
        f"{numbers.count('usual_launches_n', median(row['launches_n'] for row in others))} "
        f"on {usual}"
    )
    why, case = _why_slow(longer, split, worst["launches_n"], counts, numbers, same=same)
    rule = RULES["uneven_work" if longer else "slow_rank"]
    more_pct = longer_pct(worst["compute_total_ns"], [row["compute_total_ns"] for row in others])
    more = numbers.percent("more_pct", more_pct)
    return rule.finding(
        cause=Cause("rank", rank, ranks.busiest(rank)),
        change=Change("rank", time_ns=less_ns),
        fields={
            "rank": rank,
            "more": more,
            "usual": usual,
            "kernels": named([row["name"] for row in longer], numbers) if longer else "",
        },
        case=case,
        details=f"Compute kernels take {numbers.ns('compute_ns', worst['compute_total_ns'])} on "
        f"rank {rank}{on_host(worst['host'])}, {numbers.ns('usual_compute_ns', p50_ns)} on the "
        f"median of {numbers.counted('others_n', len(others), 'other rank')}; collectives are left "
        f"out. {why}{split_words(split, numbers)}{_heaviest(ranks.imbalance, rank, numbers)}",
        evidence=cells("processes", worst, ["rank"], ["compute_total_ns", "launches_n"]),
        numbers=numbers.fields,
        rank=rank,
        device_id=ranks.busiest(rank),
        name=longer[0]["name"] if longer else None,
        window_ns=window_of(worst, "window_start_ns", "window_end_ns"),
        record=rule.record if same and not split.mixed else None,
        impact_ns=round(worst["compute_total_ns"] - p50_ns),
    )


def _why_slow(
    longer: Sequence[Record],
    split: LaunchSplit,
    launches_n: int,
    counts: str,
    numbers: Numbers,
    *,
    same: bool,
) -> tuple[str, str | None]:
    """Return evidence and the case of advice for the rank that computes longest."""
    if not same:
        return more_words(counts), "more_launches"
    if split.mixed:
        return mix_words(split, launches_n, numbers), "other_mix"
    return slow_words(longer, counts, numbers), None


def _density(process: Record) -> float:
    return process["compute_total_ns"] / max(process["window_ns"], 1)


def _heaviest(imbalance: Sequence[Record], rank: int, numbers: Numbers) -> str:
    """Say which kernel contributes most to a rank's excess."""
    suspects = [
        row
        for row in imbalance
        if row["scope"] == "kernel" and not row["communication"] and row["suspect_rank"] == rank
    ]
    first = max(suspects, key=lambda row: row["max_ns"] - row["others_p50_ns"], default=None)
    if first is None:
        return ""
    more = numbers.ns("kernel_more_ns", first["max_ns"] - first["others_p50_ns"])
    return f" The largest part is {quoted(shortened(first['name']))}: {more} above the median."


def _slow_host(ranks: Ranks) -> Finding | None:
    """Return the finding on the machine whose ranks compute longest at as many launches."""
    processes = ranks.processes
    launches = {
        host: median(process["launches_n"] for process in processes if process["host"] == host)
        for host in {process["host"] for process in processes}
    }
    typical_n = median(process["launches_n"] for process in processes) if processes else 0
    compute = [row for row in ranks.hosts if (row["scope"], row["name"]) == ("total", COMPUTE)]
    # One rank says nothing of its machine.
    compared = [
        row
        for row in compute
        if row["host"] is not None
        and row["mean_over_p50"] is not None
        and row["ranks_n"] > 1
        and abs(launches[row["host"]] - typical_n) <= SAME_LAUNCHES * typical_n
    ]
    worst = max(compared, key=lambda row: row["mean_over_p50"], default=None)
    if worst is None or worst["mean_over_p50"] < SLOW_RATIO or len(compute) < 2:
        return None
    if not hosts_beyond_chance(worst["mean_ns"] - worst["p50_ns"], worst["host"], processes):
        return None
    return _host_told(ranks, worst, launches[worst["host"]], len(compute))


def _host_told(ranks: Ranks, worst: Record, launches_n: float, hosts_n: int) -> Finding | None:
    """Return the finding on a slow machine in words; None where chance may have made it slow."""
    here = [row["rank"] for row in ranks.processes if row["host"] == worst["host"]]
    times = {row["rank"]: row["compute_total_ns"] for row in ranks.processes}
    names = compute_kernels(ranks.imbalance)
    split = split_host(ranks.kernels, names, here, times, hosts_n)
    if not (split.mixed or split.sure):
        return None
    numbers = Numbers()
    longer = [] if split.mixed else longer_on_host(ranks.kernels, names, here)
    why, case = host_words(longer, split, launches_n, numbers)
    slowest = max(here, key=ranks.computing_ns)
    elsewhere = [ranks.computing_ns(rank) for rank in times if rank not in here]
    mean_ns = sum(map(ranks.computing_ns, here)) / len(here)
    fields = {
        "host": quoted(worst["host"]),
        "more": numbers.percent("more_pct", 100.0 * (worst["mean_over_p50"] - 1)),
        "kernels": named(longer, numbers) if longer else "",
    }
    return RULES["uneven_work" if longer else "slow_host"].finding(
        cause=Cause("rank", slowest, ranks.busiest(slowest)),
        change=Change("rank", time_ns=mean_ns - median(elsewhere)),
        details=f"Compute kernels take {numbers.ns('compute_ns', worst['mean_ns'])} on the mean of "
        f"its {numbers.count('ranks_n', worst['ranks_n'])} ranks, "
        f"{numbers.ns('usual_compute_ns', worst['p50_ns'])} on the median rank of "
        f"{numbers.counted('other_hosts_n', hosts_n - 1, 'other machine')}; collectives are left "
        f"out. {why}{split_words(split, numbers, len(here))}",
        evidence=cells("host_imbalance", worst, ["scope", "name", "host"], ["mean_ns", "p50_ns"]),
        numbers=numbers.fields,
        fields=fields,
        case=case,
        tables=("host_imbalance", "rank_kernels"),
        ranks=tuple(here),
        rank=slowest,
        device_id=ranks.busiest(slowest),
        name=worst["host"],
        impact_ns=round((worst["mean_ns"] - worst["p50_ns"]) * worst["ranks_n"]),
    )


def on_host(host: str | None) -> str:
    """Return the machine of a rank in brackets, if it is known."""
    return "" if host is None else f" ({quoted(host)})"
