"""Findings on links: slow ones, and messages that are too small for them. From tables alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.taxonomy.wall_classes import COMMUNICATION
from nsys_llm.view.text import quoted

from ..tables.sizes import IMPLAUSIBLE_SIZE
from .texts import (
    LEAST_COLLECTIVES,
    LEAST_LINK_BYTES,
    MOST_SMALL_BYTES,
    RULES,
    SLOW_PCT,
    SLOW_TIMES,
    SMALL_A_STEP,
)

_WHERE: Final = ("group", "operation", "bucket")
_SPEED: Final = ("busbw_gb_s", "peak_gb_s", "peak_pct", "sized_n", "exposed_ns")


def link_findings(tables: Tables) -> list[Finding]:
    """Return slow links, and groups whose messages are many and small."""
    rows, groups = records(tables["message_sizes"]), tables["groups"]
    names = dict(zip(groups["group"], groups["ranks"], strict=True))
    # Between the messages of tensor parallelism layers compute: nobody can fuse them.
    is_tensor = (groups["axis"] == "tp").fillna(False)
    may_be_tensor = is_tensor | groups["candidates"].str.contains("tp", na=False)
    small_rows = [row for row in rows if row["group"] in set(groups["group"][~may_be_tensor])]
    slow = [
        _slow_link(row, names)
        for row in rows
        if row["peak_pct"] is not None
        and row["peak_pct"] < SLOW_PCT
        and row["sized_n"] >= LEAST_COLLECTIVES
        and row["size_bytes"] >= row["sized_n"] * LEAST_LINK_BYTES
    ]
    by_operation = grouped(small_rows, "group", "operation").values()
    small = [found for some in by_operation for found in _small(some, names, tables)]
    slower = (groups["times"] >= SLOW_TIMES) & (groups["collectives_n"] >= LEAST_COLLECTIVES)
    of_groups = map(_slow_group, records(groups[slower.fillna(False)]))
    return [*slow, *of_groups, *small]


def implausible_sizes(tables: Tables) -> list[Finding]:
    """Return the remark on collectives whose sizes no link carries in their time, if any."""
    of = {"reason": IMPLAUSIBLE_SIZE}
    sizes_n = claim(tables, "sizes_n", "transfers", "bytes", "count", **of)
    largest = claim(tables, "largest_bytes", "transfers", "bytes", "max", **of)
    return [RULES["implausible_sizes"].finding(evidence=(sizes_n, largest))] * bool(sizes_n.value)


def _slow_group(row: Record) -> Finding:
    columns = ("times", "twins", "collectives_n", "exposed_ns", "lost_ns")
    return RULES["slow_group"].finding(
        cause=Cause("link", detail=row["ranks"]),
        change=Change("known", time_ns=row["lost_ns"], wall_classes=(COMMUNICATION,)),
        fields={
            "ranks": row["ranks"],
            "machine": quoted(row["host"]) if row["host"] else None,
        },
        evidence=cells("groups", row, ("group", "host"), columns),
        rank=row["rank"],
        device_id=row["device_id"],
        impact_ns=row["lost_ns"],
    )


def _slow_link(row: Record, names: dict[int, str]) -> Finding:
    lost_ns = (1 - row["busbw_gb_s"] / row["peak_gb_s"]) * row["exposed_ns"]
    return RULES["slow_link"].finding(
        cause=Cause("link"),
        change=Change("unknown", time_ns=lost_ns, wall_classes=(COMMUNICATION,)),
        fields={"ranks": quoted(names[row["group"]])},
        evidence=cells("message_sizes", row, _WHERE, _SPEED),
        rank=row["rank"],
        device_id=row["device_id"],
        impact_ns=round(lost_ns),
    )


def _small(rows: Sequence[Record], names: dict[int, str], tables: Tables) -> list[Finding]:
    """Return the finding on small messages of a group, where larger ones tell how fast it is."""
    sized = [row for row in rows if row["bucket"] is not None and row["algbw_gb_s"]]
    small = [row for row in sized if row["size_bytes"] < row["sized_n"] * MOST_SMALL_BYTES]
    if not small or small[-1] is sized[-1]:
        return []
    group, operation = sized[0]["group"], sized[0]["operation"]
    transfers = tables["transfers"]
    here = transfers[(transfers["group"] == group) & (transfers["operation"] == operation)]
    here = here[here["step"].notna() & (here["bytes"] < MOST_SMALL_BYTES)]
    steps_n = int(here["step"].nunique())
    if not steps_n or len(here) < SMALL_A_STEP * steps_n:
        return []
    where = {"group": group, "operation": operation}
    of = partial(claim, tables, bucket=tuple(row["bucket"] for row in small), **where)
    exposed = of("exposed_ns", "message_sizes", "exposed_ns")
    fused_ns = sum(row["size_bytes"] for row in small) / max(row["algbw_gb_s"] for row in sized)
    lost_ns = max(exposed.value - fused_ns, 0.0)
    worst = max(small, key=lambda row: row["exposed_ns"])
    return [
        RULES["small_messages"].finding(
            cause=Cause("transfer"),
            change=Change("unknown", time_ns=lost_ns, wall_classes=(COMMUNICATION,)),
            fields={
                "ranks": quoted(names[group]),
                "a_step_n": len(here) / steps_n,
                "fused_ns": fused_ns,
            },
            evidence=(of("sized_n", "message_sizes", "sized_n"), exposed),
            rank=worst["rank"],
            device_id=worst["device_id"],
            impact_ns=round(lost_ns),
        )
    ]
