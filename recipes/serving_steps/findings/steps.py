"""Findings on steps of servers, each on one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, percent, records
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.phase_maps import DECODE, MIXED, PREFILL
from nsys_llm.taxonomy.wall_classes import COMPUTE, IDLE
from nsys_llm.view.text import listed, quoted

from .texts import ADDS_PCT, BEFORE_PCT, EAGER_PCT, PADDING_PCT, RULES


def serving_findings(tables: Tables) -> list[Finding]:
    """Return the findings on the rank whose steps take longest, and on names of no format."""
    servers = records(tables["servers"])
    made = [
        RULES["names_of_no_format"].finding(
            fields={"examples": examples(row)},
            evidence=cells("servers", row, ("rank",), ("unparsed_n", "steps_n")),
            **_place(row),
        )
        for row in servers
        if row["unparsed_n"]
    ]
    server = next((row for row in servers if row["slowest"]), None)
    if server is None:
        return made
    rank = server["rank"]
    names = ("padding", "inter_token", "speculation")
    of_rank = {name: records(tables[name][tables[name]["rank"] == rank]) for name in names}
    host_idle_ns = Walls(tables).host_idle_ns((rank, server["device_id"]))
    place = _place(server)
    reported = (
        _padding(of_rank["padding"], place),
        _eager(tables, of_rank["inter_token"], host_idle_ns, place),
        _before(tables, place),
        _prefill(of_rank["inter_token"], place),
        _drafts(of_rank["speculation"], place),
    )
    return made + [finding for finding in reported if finding is not None]


def examples(row: Record) -> str:
    """Return names of no format, of a row of `servers`."""
    return listed([quoted(name) for name in str(row["unparsed"]).split(" | ")])


def _place(server: Record) -> dict[str, Any]:
    return {"rank": server["rank"], "device_id": server["device_id"]}


def _padding(rows: Sequence[Record], place: Record) -> Finding | None:
    row = next(iter(rows), None)
    if row is None or row["padding_pct"] < PADDING_PCT or row["time_ns"] is None:
        return None
    names = ("padding_n", "rows_n", "padding_pct", "steps_n", "row_ns", "time_ns")
    return RULES["graph_padding"].finding(
        cause=Cause("kernels", detail="padding"),
        change=Change("kernels", time_ns=row["time_ns"]),
        evidence=cells("padding", row, ("rank",), names),
        name="padding",
        impact_ns=round(row["time_ns"]),
        **place,
    )


def _eager(
    tables: Tables, waits: Sequence[Record], host_idle_ns: int, place: Record
) -> Finding | None:
    of_rank = partial(claim, tables, rank=place["rank"])
    of = partial(of_rank, phase=(MIXED, PREFILL), graph_pct=0.0)
    cost, idle = of("cost_ns", "batches", "total_ns"), of("idle_ns", "batches", "eager_idle_ns")
    share = of("idle_pct", "batches", "eager_idle_ns", "sum", cost)
    replayed = of_rank("graph_pct", "batches", "graph_pct", "max", phase=DECODE)
    # Without any graph these steps are like all others.
    if not replayed.value or (share.value or 0) < EAGER_PCT:
        return None
    wait: Record = waits[0] if waits else {}
    finding = RULES["eager_prefill"].finding(
        cause=Cause("place", detail="steps with prefill"),
        change=Change("host_part", time_ns=idle.value, worst_pct=wait.get("adds_p99_pct")),
        fields={"mixed_adds_ns": wait.get("mixed_adds_ns"), "p99_ns": wait.get("p99_ns")},
        evidence=(of("eager_n", "batches", "steps_n"), cost, idle, share),
        impact_ns=round(idle.value),
        **place,
    )
    # It speaks for the host where it is most of what the GPU waits for.
    return finding if 2 * idle.value >= host_idle_ns else replace(finding, specificity=0)


def _before(tables: Tables, place: Record) -> Finding | None:
    of, table = partial(claim, tables, rank=place["rank"]), tables["before_steps"]
    share = of("window_pct", "before_steps", "window_pct")
    if share.value < BEFORE_PCT:
        return None
    row, *others = records(table[table["rank"] == place["rank"]])
    time_ns = sum(other["total_ns"] for other in (row, *others))
    return RULES["host_before_steps"].finding(
        cause=Cause("place", detail="before steps"),
        change=Change("host_part", time_ns=time_ns),
        fields={"range": row["range"], "range_ns": row["idle_ns"]},
        evidence=(of("idle_ns", "before_steps", "idle_ns"), share),
        name=row["range"],
        impact_ns=time_ns,
        **place,
    )


def _prefill(rows: Sequence[Record], place: Record) -> Finding | None:
    if not rows or percent(rows[0]["mixed_usual_ns"], rows[0]["pure_ns"]) <= ADDS_PCT:
        return None
    row = rows[0]
    names = ("mixed_adds_ns", "pure_ns", "mixed_n", "p50_ns", "p99_ns", "adds_p99_pct")
    worst_pct = row["adds_p99_pct"]
    return RULES["prefill_in_decode"].finding(
        cause=Cause("place", detail="prefill between tokens"),
        change=Change("unknown", time_ns=0, wall_classes=(COMPUTE,), worst_pct=worst_pct),
        evidence=cells("inter_token", row, ("rank",), names),
        name="prefill",
        **place,
    )


def _drafts(rows: Sequence[Record], place: Record) -> Finding | None:
    if not rows or rows[0]["lost_ns"] is None:
        return None
    row = rows[0]
    lost_ns, most_ns = row["lost_ns"], row["lost_most_ns"]
    names = ("accepted", "accepted_low", "accepted_high", "needed_low", "pairs_n", "lost_ns")
    return RULES["drafts_lose"].finding(
        cause=Cause("kernels", detail="drafts"),
        change=Change("known", time_ns=most_ns, sure_ns=lost_ns, wall_classes=(COMPUTE, IDLE)),
        evidence=cells("speculation", row, ("rank",), names),
        name="drafts",
        impact_ns=round(lost_ns),
        **place,
    )
