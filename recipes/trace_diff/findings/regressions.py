"""Findings of trace_diff: what a change cost in wall-clock time, and what got better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import IMPROVEMENT, PERFORMANCE, Finding, cells
from nsys_llm.report.price import Price
from nsys_llm.report.records import Tables, records
from nsys_llm.report.walls import Walls
from nsys_llm.trace.rank_sets import COMPARED, INPUT
from nsys_llm.view.text import NOT_KNOWN, format_ns, quoted

from ..tables.checks import BLOCKING
from .bursts import bursts
from .change import Change, ClassCost, Clock
from .changes import find_changes
from .texts import RULES


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    clock = Clock(tables)
    changes = [_finding(change, tables, clock) for change in find_changes(tables)]
    return [*_not_comparable(tables), *changes, *_of_bursts(tables, clock)]


def _finding(change: Change, tables: Tables, clock: Clock) -> Finding:
    explained, cost = change.explained, change.cost
    if explained.most_ns is not None:
        cost = replace(cost, cost_ns=min(cost.cost_ns, explained.most_ns))
    price = _price(cost, tables, clock) if cost.cost_ns > 0 else None
    more = "more" if cost.cost_ns > 0 else "less"
    gpu = f"GPU {cost.device_id} of rank {cost.rank}"
    of = "in all" if clock.verdict["basis"] == "window" else f"a {clock.unit}"
    details = change.sentence[0].upper() + change.sentence[1:]
    return RULES[explained.rule].finding(
        price=price,
        cause=explained.cause,
        kind=PERFORMANCE if price is not None else IMPROVEMENT,
        details=f"{details}. On {gpu} it takes {format_ns(abs(cost.cost_ns))} {more} {of}.",
        fields=explained.fields,
        evidence=(*cost.evidence, *explained.evidence),
        numbers={**explained.numbers, "change_ns": cost.cost_ns, "mean_change_ns": cost.mean_ns},
        name=explained.name,
        rank=cost.rank,
        device_id=cost.device_id,
        impact_ns=round(abs(cost.cost_ns)),
    )


def _price(cost: ClassCost, tables: Tables, clock: Clock) -> Price:
    """Return the measured part of the change as what a fix would win back on one GPU."""
    walls = Walls(tables, INPUT)
    span_ns = walls.span_ns(cost.rank, cost.device_id)
    unit_ns = clock.step_ns(cost.rank, cost.device_id)
    steps = span_ns / unit_ns if unit_ns and clock.verdict["basis"] == "step" else None
    most_ns = walls.class_ns(cost.rank, cost.device_id, cost.wall_class)
    return Price(
        span_ns=span_ns,
        wall_classes=(cost.wall_class,),
        about_ns=max(min(round(cost.cost_ns * (steps or 1.0)), most_ns), 0),
        about_basis="measured",
        steps_n=steps,
        step_unit=clock.unit,
    )


def _of_bursts(tables: Tables, clock: Clock) -> Iterator[Finding]:
    """Yield the slow steps of the input, where it has more of them."""
    burst = bursts(tables)
    if burst is None or not burst.is_worse:
        return
    row = burst.row
    where = f" pauses in {quoted(row['range'])}" if row["range"] else ""
    cost = ClassCost(
        row["wall_class"],
        0.0,
        row["excess_ns"] * row["slow_n"] / max(row["steps_n"], 1),
        row["rank"],
        row["device_id"],
        {},
        (),
    )
    evidence = cells(
        "slow_steps",
        row,
        ("run", "rank", "device_id"),
        ("slow_n", "steps_n", "usual_ns", "excess_ns", "detail_ns"),
    )
    excess, detail = format_ns(row["excess_ns"]), row["detail"] or row["wall_class"]
    yield RULES["bursts"].finding(
        price=_price(cost, tables, clock),
        cause=Cause("host", row["rank"])
        if row["wall_class"] == "idle"
        else Cause("rank", row["rank"]),
        details=f"{burst.words}. They take {excess} longer than the others "
        f"({format_ns(row['usual_ns'])}), {format_ns(row['detail_ns'])} of it {quoted(detail)} on "
        f"rank {row['rank']}.",
        fields={"rank": row["rank"], "where": where},
        evidence=evidence,
        numbers=burst.numbers,
        rank=row["rank"],
        device_id=row["device_id"],
        impact_ns=round(row["excess_ns"] * row["slow_n"]),
    )


def _not_comparable(tables: Tables) -> Iterator[Finding]:
    rows = tables["comparability"]
    for row in records(rows[rows["status"].isin(BLOCKING)]):
        before, after = (
            quoted(row[side]) if isinstance(row[side], str) else NOT_KNOWN for side in COMPARED
        )
        yield RULES["not_comparable"].finding(
            details=f"Baseline: {before}. Input: {after}. Effect: {row['meaning']}.",
            evidence=cells("comparability", row, ("check",), ("meaning",)),
            fields={"what": BLOCKING[row["status"]], "check": row["check"]},
            name=row["check"],
            case=row["status"],
        )
