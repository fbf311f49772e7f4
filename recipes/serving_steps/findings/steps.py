"""Findings on steps of servers, each on one GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Record, Tables, first_record, percent, records
from nsys_llm.report.walls import Gpu, Walls, host_cause
from nsys_llm.taxonomy.wall_classes import COMPUTE
from nsys_llm.view.text import listed, quoted

from .texts import ADDS_PCT, BEFORE_PCT, EAGER_PCT, PADDING_PCT, RULES


def pace_rank(tables: Tables) -> int | None:
    """Return the rank whose steps take longest, of those whose names are read; None for none."""
    servers = tables["servers"]
    rows = servers[servers["reason"].isna() & servers["cost_ns"].notna()]
    if rows.empty:
        return None
    return int(rows.loc[rows["cost_ns"].astype("float64").idxmax(), "rank"])


def serving_findings(tables: Tables) -> list[Finding]:
    """Return the findings on the rank whose steps take longest, and on names of no format."""
    unread = [_names(row) for row in records(tables["servers"]) if row["unparsed_n"]]
    rank = pace_rank(tables)
    if rank is None:
        return unread
    servers = tables["servers"]
    server = first_record(servers[servers["rank"] == rank])
    walls = Walls(tables)
    made = (rule(tables, server, walls) for rule in _RULES)
    return unread + [finding for finding in made if finding is not None]


def _names(row: Record) -> Finding:
    names = listed([quoted(name) for name in str(row["unparsed"]).split(" | ")])
    return RULES["names_of_no_format"].finding(
        fields={"examples": names},
        evidence=cells("servers", row, ("rank",), ("unparsed_n", "steps_n")),
        **_place(row),
    )


def _place(server: Record) -> dict[str, Any]:
    return {"rank": server["rank"], "device_id": server["device_id"]}


def _of_rank(tables: Tables, table: str, server: Record) -> pd.DataFrame:
    rows = tables[table]
    return rows[rows["rank"] == server["rank"]]


def _padding(tables: Tables, server: Record, walls: Walls) -> Finding | None:
    rows = _of_rank(tables, "padding", server)
    if rows.empty:
        return None
    row = first_record(rows)
    if row["padding_pct"] < PADDING_PCT or row["time_ns"] is None:
        return None
    names = ("padding_n", "rows_n", "padding_pct", "steps_n", "row_ns", "time_ns")
    return RULES["graph_padding"].finding(
        cause=Cause("kernels", detail="padding"),
        change=Change("kernels", time_ns=row["time_ns"]),
        evidence=cells("padding", row, ("rank",), names),
        name="padding",
        impact_ns=round(row["time_ns"]),
        **_place(server),
    )


def _eager(tables: Tables, server: Record, walls: Walls) -> Finding | None:
    rows = _of_rank(tables, "batches", server)
    eager = rows[(rows["phase"] != "decode") & (rows["graph_pct"] == 0)]
    cost_ns, idle_ns = _cost_ns(eager), float((eager["host_idle_ns"] * eager["steps_n"]).sum())
    if not cost_ns or percent(idle_ns, cost_ns) < EAGER_PCT:
        return None
    decode = rows[rows["phase"] == "decode"]
    replayed_n = float((decode["graph_pct"] * decode["steps_n"]).sum())
    waits = records(_of_rank(tables, "inter_token", server))
    wait: Record = waits[0] if waits else {}
    gpu = server["rank"], server["device_id"]
    return RULES["eager_prefill"].finding(
        cause=_host_or_place(walls, gpu, idle_ns, "steps with prefill"),
        change=Change("host_part", time_ns=idle_ns, worst_pct=wait.get("adds_p99_pct")),
        fields={
            "eager_n": int(eager["steps_n"].sum()),
            "idle_ns": idle_ns,
            "cost_ns": cost_ns,
            "idle_pct": percent(idle_ns, cost_ns),
            "graph_pct": replayed_n / max(int(decode["steps_n"].sum()), 1),
            "mixed_adds_ns": wait.get("mixed_adds_ns"),
            "p99_ns": wait.get("p99_ns"),
        },
        impact_ns=round(idle_ns),
        **_place(server),
    )


def _cost_ns(buckets: pd.DataFrame) -> float:
    """Return the cost of all steps of some buckets."""
    return float(((buckets["busy_ns"] + buckets["idle_ns"]) * buckets["steps_n"]).sum())


def _host_or_place(walls: Walls, gpu: Gpu, idle_ns: float, place: str) -> Cause:
    """Return the host as the cause where it explains half of what the GPU waits for it."""
    if 2 * idle_ns >= walls.host_idle_ns(gpu):
        return host_cause(walls.host_losses_ns, gpu)
    return Cause("place", detail=place)


def _before(tables: Tables, server: Record, walls: Walls) -> Finding | None:
    rows = _of_rank(tables, "before_steps", server)
    if rows.empty:
        return None
    cost_pct, idle_ns = float(rows["cost_pct"].sum()), float(rows["idle_ns"].sum())
    if cost_pct < BEFORE_PCT:
        return None
    row, time_ns = first_record(rows), int(rows["total_ns"].sum())
    gpu = server["rank"], server["device_id"]
    return RULES["host_before_steps"].finding(
        cause=_host_or_place(walls, gpu, time_ns, "before steps"),
        change=Change("host_part", time_ns=time_ns),
        fields={
            "idle_ns": idle_ns,
            "cost_pct": cost_pct,
            "range": row["range"],
            "range_ns": row["idle_ns"],
        },
        name=row["range"],
        impact_ns=time_ns,
        **_place(server),
    )


def _prefill(tables: Tables, server: Record, walls: Walls) -> Finding | None:
    rows = _of_rank(tables, "inter_token", server)
    if rows.empty:
        return None
    row = first_record(rows)
    if percent(row["mixed_adds_ns"], row["pure_ns"]) <= ADDS_PCT:
        return None
    names = ("mixed_adds_ns", "pure_ns", "mixed_n", "p50_ns", "p99_ns", "adds_p99_pct")
    return RULES["prefill_in_decode"].finding(
        cause=Cause("place", detail="prefill between tokens"),
        change=Change("unknown", time_ns=0, wall_classes=(COMPUTE,), worst_pct=row["adds_p99_pct"]),
        evidence=cells("inter_token", row, ("rank",), names),
        name="prefill",
        **_place(server),
    )


def _growth(tables: Tables, server: Record, walls: Walls) -> Finding | None:
    rows = _of_rank(tables, "context_growth", server)
    rows = rows[rows["listed"]]
    if rows.empty:
        return None
    row = first_record(rows.sort_values("grown_ns", ascending=False, kind="stable"))
    names = ("low_ns", "high_ns", "ratio", "steps_n", "low_keys", "high_keys", "grown_ns")
    return RULES["grows_with_context"].finding(
        cause=Cause("kernels", detail=row["kernel"]),
        change=Change("kernels", time_ns=row["grown_ns"]),
        evidence=cells("context_growth", row, ("rank", "kernel"), names),
        name=row["kernel"],
        impact_ns=round(row["grown_ns"]),
        **_place(server),
    )


_RULES: Final[tuple[Callable[[Tables, Record, Walls], Finding | None], ...]] = (
    _padding,
    _eager,
    _before,
    _prefill,
    _growth,
)
