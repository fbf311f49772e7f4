"""Findings on how ranks share the work and wait for each other. Reads tables only.

Time in collectives is never held against the rank that has it: it came early and waits. The rank
with the least of it is the one to look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import pandas as pd

from nsys_llm.analyses.collectives.stages import end_stages, may_be_two_stages
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, records, severity_of, window_of
from nsys_llm.taxonomy.communication import COMMUNICATION, SEND_RECV, is_communication, operation_of
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted, shortened

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
from .overlap import exposed_communication
from .texts import (
    LATE_PCT,
    LATE_RATIO,
    RULES,
    SAME_LAUNCHES,
    SLOW_RATIO,
    UNEVEN_KERNELS,
    UNEVEN_PCT,
    UNEVEN_RATIO,
)

#: A rank with less compute than this share of the most only looks on, and is not compared; ours.
_ONLOOKER: Final = 0.01

#: Most ranks of one job launch as much as the median, within this share: a stage of a pipeline may
#: have half of the layers of another, other programs have nothing in common.
_ALIKE: Final = 0.5


def balance_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about communication, slow and late ranks, and uneven work.

    Args:
        tables: Finished tables by name: overlap, processes, imbalance, host_imbalance,
            rank_kernels.
    """
    transfers_n = _transfers_n(tables["rank_kernels"])
    staged = bool(end_stages(transfers_n))
    # Which of two ranks is late by the schedule of a pipeline only tail_stats can tell.
    equals = not (staged or may_be_two_stages(transfers_n))
    overlap, processes, imbalance, hosts = (
        records(tables[name]) for name in ("overlap", "processes", "imbalance", "host_imbalance")
    )
    return [
        *exposed_communication(overlap, staged=staged),
        *_slow_rank(processes, imbalance, tables["rank_kernels"]),
        *(_late_rank(imbalance, processes) if equals else []),
        *_uneven_kernels(imbalance, processes, tables["rank_kernels"]),
        *_slow_host(hosts, processes, imbalance, tables["rank_kernels"]),
    ]


def _transfers_n(kernels: pd.DataFrame) -> list[int]:
    """Return each rank's sends and receives if they are most of the communication, else nothing."""
    mine = kernels[kernels["launches_n"] > 0]
    operation = {name: operation_of(name) for name in mine["name"] if is_communication(name)}
    mine = mine.assign(operation=mine["name"].map(operation))
    total_ns = mine.groupby("operation")["total_ns"].sum()
    p2p = mine[mine["operation"] == SEND_RECV]
    launches_n = p2p.groupby("rank")["launches_n"].sum().reindex(kernels["rank"].unique())
    mostly = 2 * int(total_ns.get(SEND_RECV, 0)) > int(total_ns.sum())
    return launches_n.fillna(0).astype(int).tolist() if mostly else []


def _slow_rank(
    processes: Sequence[Record], imbalance: Sequence[Record], rank_kernels: pd.DataFrame
) -> Iterator[Finding]:
    """Return the finding on the rank that computes longest."""
    most_ns = max((row["compute_total_ns"] for row in processes), default=0)
    working = [row for row in processes if row["compute_total_ns"] > _ONLOOKER * most_ns]
    if len(working) < 2:
        return
    worst = max(working, key=lambda row: row["compute_total_ns"])
    others = [row for row in working if row is not worst]
    p50_ns = median(row["compute_total_ns"] for row in others)
    severity = severity_of(worst["compute_total_ns"] / p50_ns, SLOW_RATIO)
    typical_n = median(row["launches_n"] for row in others)
    same = abs(worst["launches_n"] - typical_n) <= SAME_LAUNCHES * typical_n
    density = _density(worst) / median(_density(row) for row in others)
    # More launches in a longer capture is no more work.
    if severity is None or not (same or density >= SLOW_RATIO["low"]):
        return
    split = split_beyond_chance(rank_kernels, imbalance, worst, working)
    if split is None:
        return
    usual = "the median rank" if len(others) > 1 else "the other rank"
    longer = longer_kernels(imbalance, worst["rank"]) if same and not split.mixed else []
    more = format_percent(100.0 * (worst["compute_total_ns"] / p50_ns - 1))
    counts = f"{format_count(typical_n)} on {usual}"
    why, case = _why_slow(longer, split, worst["launches_n"], counts, same=same)
    rule = RULES["uneven_work" if longer else "slow_rank"]
    yield rule.finding(
        severity=severity,
        fields={
            "rank": worst["rank"],
            "more": more,
            "usual": usual,
            "kernels": named(longer) if longer else "",
        },
        case=case,
        details=f"Compute kernels take {format_ns(worst['compute_total_ns'])} on rank "
        f"{worst['rank']}{_on(worst['host'])}, {format_ns(p50_ns)} on the median of "
        f"{counted(len(others), 'other rank')}; collectives are left out. {why}"
        f"{split_words(split)}{_heaviest(imbalance, worst['rank'])}",
        rank=worst["rank"],
        name=longer[0]["name"] if longer else None,
        window_ns=window_of(worst, "window_start_ns", "window_end_ns"),
        record=rule.record if same and not split.mixed else None,
        impact_ns=round(worst["compute_total_ns"] - p50_ns),
    )


def _why_slow(
    longer: Sequence[Record], split: LaunchSplit, launches_n: int, usual: str, *, same: bool
) -> tuple[str, str | None]:
    """Return evidence and the case of advice for the rank that computes longest."""
    if not same:
        return more_words(launches_n, usual), "more_launches"
    if split.mixed:
        return mix_words(split, launches_n), "other_mix"
    return slow_words(longer, launches_n, usual), None


def _density(process: Record) -> float:
    return process["compute_total_ns"] / max(process["window_ns"], 1)


def _heaviest(imbalance: Sequence[Record], rank: int) -> str:
    """Say which kernel contributes most to a rank's excess."""
    own = [
        row
        for row in imbalance
        if row["scope"] == "kernel" and not row["communication"] and row["suspect_rank"] == rank
    ]
    first = max(own, key=lambda row: row["max_ns"] - row["others_p50_ns"], default=None)
    if first is None:
        return ""
    more = format_ns(first["max_ns"] - first["others_p50_ns"])
    return f" The largest part is {quoted(shortened(first['name']))}: {more} above the median."


def _late_rank(imbalance: Sequence[Record], processes: Sequence[Record]) -> Iterator[Finding]:
    """Return the finding on the rank with the least time in collectives."""
    row = _total(imbalance, COMMUNICATION)
    if row is None or row["ranks_n"] < row["all_ranks_n"] or row["all_ranks_n"] < 2:
        return
    # Only the same collectives can be compared.
    typical_n = row["typical_launches_n"]
    for launches_n in (row["most_rank_launches_n"], row["least_rank_launches_n"]):
        if abs(launches_n - typical_n) > SAME_LAUNCHES * typical_n:
            return
    rank = row["least_rank"]
    own = next(one for one in processes if one["rank"] == rank)
    others = [one["communication_total_ns"] for one in processes if one["rank"] != rank]
    p50_ns = median(others)
    severity = severity_of(100.0 * (p50_ns - row["min_ns"]) / max(own["window_ns"], 1), LATE_PCT)
    if severity is None or p50_ns < LATE_RATIO * row["min_ns"]:
        return
    yield RULES["late_rank"].finding(
        severity=severity,
        details=f"Communication kernels take {format_ns(row['min_ns'])} on rank {rank}"
        f"{_on(row['least_host'])}, {format_ns(p50_ns)} on the median of the others and "
        f"{format_ns(row['max_ns'])} on rank {row['most_rank']}. Who comes last waits least; rank "
        f"{row['most_rank']} is not to blame.",
        fields={"rank": rank},
        rank=rank,
        name=COMMUNICATION,
        window_ns=window_of(own, "window_start_ns", "window_end_ns"),
        impact_ns=row["total_ns"] - row["min_ns"] * row["all_ranks_n"],
    )


def _uneven_kernels(
    imbalance: Sequence[Record], processes: Sequence[Record], rank_kernels: pd.DataFrame
) -> Iterator[Finding]:
    """One finding a kernel, the most excess first; none on a rank that is slow throughout."""
    whole = _total(imbalance, COMPUTE)
    if whole is None or whole["all_ranks_n"] < 2 or not _alike(processes):
        return
    slow = {finding.rank for finding in _slow_rank(processes, imbalance, rank_kernels)}
    uneven = [
        row
        for row in imbalance
        if row["scope"] == "kernel"
        and not row["communication"]
        # Null: the median rank does not launch it.
        and (row["most_over_p50"] is None or row["most_over_p50"] >= UNEVEN_RATIO)
        and not (
            row["most_rank"] in slow and row["most_rank_launches_n"] == row["typical_launches_n"]
        )
    ]
    for row in uneven[:UNEVEN_KERNELS]:
        share_pct = 100.0 * row["excess_ns"] / max(whole["total_ns"], 1)
        severity = severity_of(share_pct, UNEVEN_PCT)
        if severity is None:
            return
        yield RULES["uneven_kernel"].finding(
            severity=severity,
            details=f"{format_ns(row['max_ns'])} on rank {row['most_rank']}"
            f"{_on(row['most_host'])} in {format_count(row['most_rank_launches_n'])} launches, "
            f"{format_ns(row['others_p50_ns'])} on the median of the others in "
            f"{format_count(row['typical_launches_n'])}; {format_count(row['ranks_n'])} of "
            f"{format_count(row['all_ranks_n'])} ranks launch it. Above the others: "
            f"{format_ns(row['excess_ns'])}, {format_percent(share_pct)} of all compute.",
            fields={"kernel": quoted(shortened(row["name"])), "rank": row["most_rank"]},
            rank=row["most_rank"],
            name=row["name"],
            impact_ns=row["excess_ns"],
        )


def _alike(processes: Sequence[Record]) -> bool:
    """Tell whether most ranks launch about as much, as the ranks of one job do."""
    counts = [row["launches_n"] for row in processes]
    if not counts:
        return False
    typical_n = median(counts)
    near = [n for n in counts if abs(n - typical_n) <= _ALIKE * typical_n]
    return 2 * len(near) > len(counts)


def _slow_host(
    hosts: Sequence[Record],
    processes: Sequence[Record],
    imbalance: Sequence[Record],
    rank_kernels: pd.DataFrame,
) -> Iterator[Finding]:
    """Return the finding on the machine whose ranks compute longest at as many launches."""
    launches = {
        host: median(one["launches_n"] for one in processes if one["host"] == host)
        for host in {one["host"] for one in processes}
    }
    typical_n = median(one["launches_n"] for one in processes) if processes else 0
    compute = [row for row in hosts if (row["scope"], row["name"]) == ("total", COMPUTE)]
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
    severity = severity_of(worst["mean_over_p50"], SLOW_RATIO) if worst else None
    if worst is None or severity is None or len(compute) < 2:
        return
    if not hosts_beyond_chance(worst["mean_ns"] - worst["p50_ns"], worst["host"], processes):
        return
    mine = [row["rank"] for row in processes if row["host"] == worst["host"]]
    times = {row["rank"]: row["compute_total_ns"] for row in processes}
    names = compute_kernels(imbalance)
    split = split_host(rank_kernels, names, mine, times, len(compute))
    if not (split.mixed or split.sure):
        return
    longer = [] if split.mixed else longer_on_host(rank_kernels, names, mine)
    why, case = host_words(longer, split, launches[worst["host"]])
    more = format_percent(100.0 * (worst["mean_over_p50"] - 1))
    machine = {"host": quoted(worst["host"]), "more": more}
    if longer:
        machine["kernels"] = quoted(shortened(longer[0]))
    yield RULES["uneven_work" if longer else "slow_host"].finding(
        severity=severity,
        details=f"Compute kernels take {format_ns(worst['mean_ns'])} on the mean of its "
        f"{format_count(worst['ranks_n'])} ranks, {format_ns(worst['p50_ns'])} on the median rank "
        f"of {counted(len(compute) - 1, 'other machine')}; collectives are left out. {why}"
        f"{split_words(split, len(mine))}",
        fields=machine,
        case=case,
        tables=("host_imbalance", "rank_kernels"),
        name=worst["host"],
        impact_ns=round((worst["mean_ns"] - worst["p50_ns"]) * worst["ranks_n"]),
    )


def _total(imbalance: Sequence[Record], name: str) -> Record | None:
    rows = (row for row in imbalance if (row["scope"], row["name"]) == ("total", name))
    return next(rows, None)


def _on(host: str | None) -> str:
    return "" if host is None else f" ({quoted(host)})"
