"""The finding on communication that is exposed. Tables only.

Time in collectives is never held against the rank that has it: it came early and waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from nsys_llm.analyses.collectives.stages import may_be_stages
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, records, window_of
from nsys_llm.report.walls import Walls, share_of
from nsys_llm.taxonomy.communication import SEND_RECV, is_communication, operation_of
from nsys_llm.taxonomy.wall_classes import COMMUNICATION as COMMUNICATES
from nsys_llm.taxonomy.wall_classes import FUSED

from .texts import FUSED_PCT, RULES, SAME_LAUNCHES


def communication_findings(tables: Tables) -> list[Finding]:
    """Return the finding on exposed communication; what stages wait for is their schedule."""
    walls = Walls(tables)
    fused = list(_fused(walls, tables))
    transfers_n = _transfers_n(tables["rank_kernels"])
    if len(transfers_n) != 2 and may_be_stages(transfers_n):
        return fused
    coupled = _same_collectives(tables["rank_kernels"])
    return [*fused, *_exposed_communication(tables, coupled=coupled)]


def _fused(walls: Walls, tables: Tables) -> Iterator[Finding]:
    """Return the remark on kernels that compute and communicate at once."""
    if not walls.gpus:
        return
    gpu = max(walls.gpus, key=lambda gpu: walls.class_ns(*gpu, FUSED) / max(walls.span_ns(*gpu), 1))
    fused_ns = walls.class_ns(*gpu, FUSED)
    if 100.0 * fused_ns >= FUSED_PCT * max(walls.span_ns(*gpu), 1):
        yield RULES["fused_communication"].finding(
            evidence=share_of(tables, gpu, "fused_ns", FUSED),
            rank=gpu[0],
            device_id=gpu[1],
            impact_ns=fused_ns,
        )


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


def _same_collectives(kernels: pd.DataFrame) -> bool:
    """Return whether all ranks launch as much communication, so that each waits for the last."""
    communicates = kernels["name"].map(
        {name: is_communication(name) for name in set(kernels["name"])}
    )
    launches_n = (
        kernels["launches_n"].where(communicates.astype(bool), 0).groupby(kernels["rank"]).sum()
    )
    most_n = SAME_LAUNCHES * launches_n.median()
    return len(launches_n) > 1 and bool(
        (launches_n > 0).all() and ((launches_n - launches_n.median()).abs() <= most_n).all()
    )


def _exposed_communication(tables: Tables, *, coupled: bool) -> Iterator[Finding]:
    """Return the finding on communication beside which nothing computes.

    Of ranks that wait for each other the one with least of it is told: what the others have more
    is waiting, which no faster transfer takes away. Of others, the one with most.
    """
    exposed_ns = _exposed_ns(Walls(tables))
    most = max(exposed_ns, key=exposed_ns.__getitem__, default=None)
    if most is None or not exposed_ns[most]:
        return
    rank, device = gpu = min(exposed_ns, key=exposed_ns.__getitem__) if coupled else most
    row, waits = _row_of(records(tables["overlap"]), gpu), coupled and most != gpu
    yield RULES["exposed_communication"].finding(
        case="waits" if waits else None,
        cause=Cause("transfer"),
        change=Change("transfer"),
        evidence=(
            *share_of(tables, gpu, "exposed_ns", COMMUNICATES),
            *share_of(tables, most, "waiting_rank_ns", COMMUNICATES)[:1],
        ),
        fields={"waiting_rank": str(most[0])},
        rank=rank,
        device_id=device,
        window_ns=window_of(row, "exposed_start_ns", "exposed_end_ns"),
        impact_ns=exposed_ns[gpu],
    )


def _row_of(overlap: Sequence[Record], gpu: tuple[int, int]) -> Record:
    return next(row for row in overlap if (row["rank"], row["device_id"]) == gpu)


def _exposed_ns(walls: Walls) -> dict[tuple[int, int], int]:
    """Return the exposed communication of that GPU of each rank which has most of it."""
    most: dict[int, tuple[int, int]] = {}
    for rank, device in walls.gpus:
        exposed_ns = walls.class_ns(rank, device, COMMUNICATES)
        if rank not in most or exposed_ns > most[rank][1]:
            most[rank] = (device, exposed_ns)
    return {(rank, device): exposed_ns for rank, (device, exposed_ns) in most.items()}
