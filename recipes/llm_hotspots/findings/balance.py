"""Findings on how ranks wait for each other, and on communication that is exposed. Tables only.

Time in collectives is never held against the rank that has it: it came early and waits. The rank
with the least of it is the one to look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import pandas as pd

from nsys_llm.analyses.collectives.stages import end_stages, may_be_two_stages
from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Record, Tables, records, window_of
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.communication import COMMUNICATION, SEND_RECV, is_communication, operation_of
from nsys_llm.taxonomy.wall_classes import COMMUNICATION as COMMUNICATES
from nsys_llm.taxonomy.wall_classes import PROFILER

from .slow_ranks import Ranks, on_host, slow_findings
from .texts import LATE_RATIO, RULES, SAME_LAUNCHES


def balance_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about communication, slow and late ranks, and uneven work.

    Args:
        tables: Finished tables by name: overlap, processes, imbalance, host_imbalance,
            rank_kernels, wall.
    """
    transfers_n = _transfers_n(tables["rank_kernels"])
    staged = bool(end_stages(transfers_n))
    ranks, overlap = Ranks.of(tables), records(tables["overlap"])
    coupled = _same_collectives(ranks.imbalance)
    slow = slow_findings(ranks)
    # Which of two ranks is late by the schedule of a pipeline only tail_stats can tell; and a rank
    # that computes longer is late for that.
    may_blame = coupled and not (slow or staged or may_be_two_stages(transfers_n))
    return [
        # What stages wait for is their schedule: tail_stats tells the bubble.
        *([] if staged else _exposed_communication(overlap, ranks.walls, coupled=coupled)),
        *slow,
        *(_late_rank(ranks, overlap) if may_blame else []),
    ]


def _transfers_n(kernels: pd.DataFrame) -> list[int]:
    """Return each rank's sends and receives if they are most of the communication, else nothing."""
    selected = kernels[kernels["launches_n"] > 0]
    operation = {name: operation_of(name) for name in selected["name"] if is_communication(name)}
    selected = selected.assign(operation=selected["name"].map(operation))
    total_ns = selected.groupby("operation")["total_ns"].sum()
    p2p = selected[selected["operation"] == SEND_RECV]
    launches_n = p2p.groupby("rank")["launches_n"].sum().reindex(kernels["rank"].unique())
    mostly = 2 * int(total_ns.get(SEND_RECV, 0)) > int(total_ns.sum())
    return launches_n.fillna(0).astype(int).tolist() if mostly else []


def _same_collectives(imbalance: Sequence[Record]) -> bool:
    """Return whether all ranks launch as much communication, so that each waits for the last."""
    row = _communication(imbalance)
    if row is None or row["ranks_n"] < row["all_ranks_n"] or row["all_ranks_n"] < 2:
        return False
    typical_n = row["typical_launches_n"]
    return all(
        abs(row[name] - typical_n) <= SAME_LAUNCHES * typical_n
        for name in ("most_rank_launches_n", "least_rank_launches_n")
    )


def _exposed_communication(
    overlap: Sequence[Record], walls: Walls, *, coupled: bool
) -> Iterator[Finding]:
    """Return the finding on communication beside which nothing computes.

    Of ranks that wait for each other the one with least of it is told: what the others have more
    is waiting, which no faster transfer takes away. Of others, the one with most.

    Args:
        overlap: Rows of the table.
        walls: Of all GPUs.
        coupled: See `_same_collectives`.
    """
    exposed_ns = _exposed_ns(walls)
    most = max(exposed_ns, key=exposed_ns.__getitem__, default=None)
    if most is None or not exposed_ns[most]:
        return
    rank, device = gpu = min(exposed_ns, key=exposed_ns.__getitem__) if coupled else most
    row = _row_of(overlap, gpu)
    numbers, span_ns = Numbers(), walls.span_ns(*gpu)
    share_pct = 100.0 * exposed_ns[gpu] / max(span_ns, 1)
    waits = "Waiting for other ranks is part of it."
    if coupled and most != gpu:
        waits = (
            f"Rank {numbers.count('waiting_rank', most[0])} has "
            f"{numbers.ns('waiting_rank_ns', exposed_ns[most])} of exposed communication: the "
            "difference is time in which it waits for other ranks."
        )
    yield RULES["exposed_communication"].finding(
        cause=Cause("transfer"),
        change=Change("transfer"),
        details=f"On GPU {device} of rank {rank}, communication runs for "
        f"{numbers.ns('exposed_ns', exposed_ns[gpu])} of {numbers.ns('span_ns', span_ns)} "
        f"without overlapping computation. {waits}",
        evidence=cells("overlap", row, ["rank", "device_id"], ["exposed_communication_ns"]),
        numbers=numbers.fields,
        fields={"share": numbers.percent("share_pct", share_pct), "rank": rank},
        rank=rank,
        device_id=device,
        window_ns=window_of(row, "exposed_start_ns", "exposed_end_ns"),
        impact_ns=exposed_ns[gpu],
    )


def _late_rank(ranks: Ranks, overlap: Sequence[Record]) -> Iterator[Finding]:
    """Return the finding on the rank with the least time in collectives.

    The time is that of the GPU which waits longest; what the profiler held the late rank for is
    not the program's, nor what it made that rank late to the first collective. Where that is most
    of why the rank is late, the rest is what follows from it.
    """
    row = _communication(ranks.imbalance)
    if row is None:
        return
    late = row["least_rank"]
    p50_ns = median(
        process["communication_total_ns"] for process in ranks.processes if process["rank"] != late
    )
    if p50_ns < LATE_RATIO * row["min_ns"]:
        return
    exposed_ns = _exposed_ns(ranks.walls)
    rank, device = waiting = max(exposed_ns, key=exposed_ns.__getitem__)
    last = next(gpu for gpu in exposed_ns if gpu[0] == late)
    held_ns = ranks.walls.class_ns(*last, PROFILER) + _held_first_ns(ranks, overlap, last, waiting)
    late_ns = exposed_ns[waiting] - exposed_ns[last] - held_ns
    numbers, host = Numbers(), on_host(row["least_host"])
    place = _row_of(overlap, waiting)
    yield RULES["late_rank"].finding(
        cause=Cause("rank", *last),
        change=Change(
            "unknown",
            time_ns=late_ns if late_ns > held_ns else 0,
            wall_classes=(COMMUNICATES,),
        ),
        details=f"Communication kernels take {numbers.ns('least_ns', row['min_ns'])} on rank "
        f"{numbers.count('late_rank', late)}{host}, {numbers.ns('usual_ns', p50_ns)} on the median "
        f"of the others and {numbers.ns('most_ns', row['max_ns'])} on rank "
        f"{numbers.count('most_rank', row['most_rank'])}. The rank that arrives last waits least.",
        evidence=cells("imbalance", row, ["scope", "name"], ["least_rank", "min_ns", "max_ns"]),
        numbers=numbers.fields,
        fields={"rank": rank, "late": late},
        rank=rank,
        device_id=device,
        name=COMMUNICATION,
        window_ns=window_of(place, "exposed_start_ns", "exposed_end_ns"),
        impact_ns=exposed_ns[waiting],
    )


def _held_first_ns(
    ranks: Ranks, overlap: Sequence[Record], late: tuple[int, int], waiting: tuple[int, int]
) -> int:
    """Return for how long the profiler held a rank before all of its work so that another waited.

    What it held the late rank for beyond the other, as far as the other waited for it in the first
    collective: a flush in the start-up makes nobody late if the ranks meet on the host after it.

    Args:
        ranks: All.
        overlap: Rows of the table.
        late: Rank and device of the one that came last.
        waiting: That of the one that waited.
    """
    held = {process["rank"]: process["held_first_ns"] for process in ranks.processes}
    first = [_row_of(overlap, gpu)["first_exposed_ns"] for gpu in (waiting, late)]
    return max(int(min(held[late[0]] - held[waiting[0]], first[0] - first[1])), 0)


def _row_of(overlap: Sequence[Record], gpu: tuple[int, int]) -> Record:
    """Return the row of a rank's device."""
    return next(row for row in overlap if (row["rank"], row["device_id"]) == gpu)


def _exposed_ns(walls: Walls) -> dict[tuple[int, int], int]:
    """Return the exposed communication of that GPU of each rank which has most of it."""
    most: dict[int, tuple[int, int]] = {}
    for rank, device in walls.gpus:
        exposed_ns = walls.class_ns(rank, device, COMMUNICATES)
        if rank not in most or exposed_ns > most[rank][1]:
            most[rank] = (device, exposed_ns)
    return {(rank, device): exposed_ns for rank, (device, exposed_ns) in most.items()}


def _communication(imbalance: Sequence[Record]) -> Record | None:
    """Return the row of all communication, if there is any."""
    rows = (row for row in imbalance if (row["scope"], row["name"]) == ("total", COMMUNICATION))
    return next(rows, None)
