"""The finding on communication that is exposed.

Time in collectives is never held against the rank that has it: it came early and waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pandas as pd

from nsys_llm.job.collectives.stages import may_be_stages
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Evidence, Finding, claim
from nsys_llm.report.records import Record, Tables, records, window_of
from nsys_llm.report.walls import Gpu, Walls, share_of, span_of
from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.taxonomy.communication import (
    OPERATION_WORDS,
    SEND_RECV,
    is_communication,
    operation_of,
)
from nsys_llm.taxonomy.wall_classes import COMMUNICATION as COMMUNICATES
from nsys_llm.taxonomy.wall_classes import FUSED

from .memops import by_gpu, largest_share, place_of
from .texts import FUSED_PCT, MAINLY, RULES, SAME_LAUNCHES, SMALL_NS

#: Where no operation has most of it.
_OTHERWISE: Final = (
    "Overlap it with computation (micro-batches, asynchronous tensor parallelism, bucketed "
    "gradients), or use a faster all-reduce for small messages."
)


def communication_findings(tables: Tables) -> list[Finding]:
    """Return the finding on exposed communication; what stages wait for is their schedule."""
    walls = Walls(tables)
    fused = list(_fused(walls, tables))
    transfers_n = _transfers_n(tables["rank_kernels"])
    if len(transfers_n) != 2 and may_be_stages(transfers_n):
        return fused
    return [*fused, *_exposed_communication(walls, tables)]


def _fused(walls: Walls, tables: Tables) -> Iterator[Finding]:
    """Return the remark on kernels that compute and communicate at once."""
    if not walls.gpus:
        return
    gpu = largest_share({gpu: walls.class_ns(*gpu, FUSED) for gpu in walls.gpus}, walls)
    fused_ns = walls.class_ns(*gpu, FUSED)
    if 100.0 * fused_ns >= FUSED_PCT * max(walls.span_ns(*gpu), 1):
        yield RULES["fused_communication"].finding(
            evidence=share_of(tables, gpu, "fused_ns", FUSED),
            impact_ns=fused_ns,
            **place_of(gpu),
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
    of_name = {name: is_communication(name) for name in set(kernels["name"])}
    own_n = kernels["launches_n"].where(kernels["name"].map(of_name).astype(bool), 0)
    launches_n = own_n.groupby(kernels["rank"]).sum()
    most_n = SAME_LAUNCHES * launches_n.median()
    return len(launches_n) > 1 and bool(
        (launches_n > 0).all() and ((launches_n - launches_n.median()).abs() <= most_n).all()
    )


def _exposed_communication(walls: Walls, tables: Tables) -> Iterator[Finding]:
    """Return the finding on communication beside which nothing computes.

    Of ranks of a group that wait for each other the one with least of it is told: what the others
    have more is waiting, which no faster transfer takes away. Of others, the one with most.
    """
    exposed_ns = _exposed_ns(walls)
    most = max(exposed_ns, key=exposed_ns.__getitem__, default=None)
    if most is None or not exposed_ns[most]:
        return
    group, kernels = walls.group(most[0]), tables["rank_kernels"]
    exposed_ns = {gpu: ns for gpu, ns in exposed_ns.items() if walls.group(gpu[0]) == group}
    coupled = _same_collectives(kernels[kernels["rank"].isin([rank for rank, _ in exposed_ns])])
    gpu = min(exposed_ns, key=exposed_ns.__getitem__) if coupled else most
    (row,) = by_gpu(records(tables["overlap"]))[gpu]
    named = _named(tables, gpu, row, exposed_ns[gpu])
    share = share_of(tables, gpu, "exposed_ns", COMMUNICATES)
    yield RULES["exposed_communication"].finding(
        case="waits" if most != gpu else None,
        cause=Cause("transfer"),
        change=named.change,
        evidence=(
            *(named.share or share[2:]),
            *share[:2],
            *share_of(tables, most, "waiting_rank_ns", COMMUNICATES)[:1],
        ),
        fields={
            "waiting_rank": str(most[0]),
            "what": named.what,
            "advice": named.advice or _OTHERWISE,
        },
        window_ns=window_of(row, "exposed_start_ns", "exposed_end_ns"),
        impact_ns=exposed_ns[gpu],
        **place_of(gpu),
    )


@dataclass(frozen=True)
class _Named:
    """What exposed communication mostly is; nothing known of it without arguments."""

    what: str = "Exposed communication"
    share: tuple[Evidence, ...] = ()
    advice: str | None = None
    change: Change = field(default_factory=lambda: Change("transfer"))


def _named(tables: Tables, gpu: Gpu, overlap: Record, whole_ns: int) -> _Named:
    """Return what most of the exposed communication of a GPU is, where one operation is."""
    rows = by_gpu(records(tables["exposed_communication"])).get(gpu, [])
    row = max(rows, key=lambda row: row["exposed_ns"], default=None)
    if row is None or row["exposed_ns"] < MAINLY * whole_ns:
        return _Named()
    words = OPERATION_WORDS.get(row["operation"], str(row["operation"]))
    on_compute = row["on_compute_stream"]
    what = f"{words[0].upper()}{words[1:]} on the compute stream" if on_compute else None
    which = {"operation": row["operation"], "on_compute_stream": on_compute}
    of = partial(claim, tables, "share_pct", "exposed_communication", "exposed_ns", "sum")
    share = of(span_of(tables, gpu), **place_of(gpu), **which)
    files = {item["File"]: item for item in records(tables["files"])}
    lines = files[row["file"]]["max_connections"]
    # Others of the same GPU run beside its computation: so could these.
    others = [other for other in rows if other is not row]
    hidden = any(2 * other["exposed_ns"] < other["running_ns"] for other in others)
    is_small = row["exposed_ns"] < SMALL_NS * max(row["launches_n"], 1)
    advice = advice_on(
        operation=row["operation"],
        stream="compute" if on_compute else "own",
        size="small" if is_small else "large",
        connections=None if lines is None else str(int(lines)),
        beside="hidden" if hidden else None,
    )
    beside_ns = min(row["exposed_ns"], overlap["compute_only_ns"])
    sure_ns = beside_ns if hidden and lines == 1 and not on_compute else None
    change = Change("transfer", row["operation"], time_ns=row["exposed_ns"], sure_ns=sure_ns)
    return _Named(what or f"Exposed {words}", (share,), advice, change)


def _exposed_ns(walls: Walls) -> dict[tuple[int, int], int]:
    """Return the exposed communication of that GPU of each rank which has most of it."""
    most: dict[int, tuple[int, int]] = {}
    for rank, device in walls.gpus:
        exposed_ns = walls.class_ns(rank, device, COMMUNICATES)
        if rank not in most or exposed_ns > most[rank][1]:
            most[rank] = (device, exposed_ns)
    return {(rank, device): exposed_ns for rank, (device, exposed_ns) in most.items()}
