"""All changes of a step, the slow steps by which two runs differ, and the findings of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import IMPROVEMENT, PERFORMANCE, Finding, cells
from nsys_llm.report.price import Price
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE, PROFILER
from nsys_llm.trace.rank_sets import BASELINE, COMPARED, INPUT
from nsys_llm.view.text import quoted

from ..tables.checks import ALL, check_words
from ..tables.step_splits import SPAN
from ..tables.step_verdict import BOTH, BURSTS, FASTER, SLOWER
from . import texts
from .change import ClassChange, Clock, a_unit
from .compute import explain_compute
from .idle import explain_idle
from .moves import explain_communication, explain_copies

#: Waiting is for what some rank does, and stands behind it.
_WAITING: Final = ("waiting", "pair_waiting", "profiler_wait")
_OF_A_RANK: Final = ("one_rank", "idle_rank")
#: What explains the change of each class, in the order of classes.
_EXPLAIN: Final[dict[str, Callable[[Clock, ClassChange], ClassChange]]] = {
    COMPUTE: explain_compute,
    COMMUNICATION: explain_communication,
    COPIES: explain_copies,
    PROFILER: lambda _, change: change.by("profiler", Cause("profiler"), {}),
    IDLE: explain_idle,
}


def find_changes(clock: Clock) -> list[ClassChange]:
    """Return the change of each class that holds a fifth of the difference, largest first."""
    if not clock.tells:
        return []
    costs = [(explain, clock.change(name)) for name, explain in _EXPLAIN.items()]
    changes = [explain(clock, cost) for explain, cost in costs if cost is not None]
    is_of_rank = any(change.rule in _OF_A_RANK for change in changes)
    sign = -1 if clock.is_slower else 1
    return sorted(
        changes,
        key=lambda change: (
            is_of_rank and change.rule in _WAITING, sign * change.cost_ns, change.wall_class
        ),
    )  # fmt: skip


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    clock = Clock(tables)
    bursts, changes = list(_of_bursts(clock)), find_changes(clock)
    if bursts and clock.verdict["word_reason"] == BURSTS:
        # What slow steps have more of is told with them.
        row = records(tables["slow_steps"])[0]
        told = row["rank"], row["wall_class"]
        changes = [change for change in changes if (change.rank, change.wall_class) != told]
    checks = tables["comparability"]
    not_comparable = [
        texts.RULES["not_comparable"].finding(
            fields={"words": capital(check_words(row))},
            evidence=cells("comparability", row, ("check",), ("meaning",)),
            name=row["check"],
        )
        for row in records(checks[checks["status"] == ALL])
    ]
    return [*not_comparable, *(_finding(change, clock) for change in changes), *bursts]


def _finding(change: ClassChange, clock: Clock) -> Finding:
    cost_ns = min(change.cost_ns, change.most_ns)
    price = _price(clock, change.rank, change.device_id, change.wall_class, cost_ns)
    return texts.RULES[change.rule].finding(
        price=price if cost_ns > 0 else None,
        cause=change.cause,
        kind=PERFORMANCE if cost_ns > 0 else IMPROVEMENT,
        fields={
            **change.fields,
            "sentence": capital(change.sentence),
            "mean_change_ns": change.mean_ns,
            "change_ns": cost_ns,
            "more": "more" if cost_ns > 0 else "less",
            "a_step": a_unit(change.unit),
        },
        evidence=change.evidence,
        name=change.fields.get("name"),
        rank=change.rank,
        device_id=change.device_id,
        impact_ns=round(abs(cost_ns)),
    )


def capital(text: str) -> str:
    """Return a text with its first letter large."""
    return text[0].upper() + text[1:]


def _price(clock: Clock, rank: int, device_id: int, wall_class: str, cost_ns: float) -> Price:
    """Return the measured part of a change as what a fix would win back on one GPU."""
    walls = Walls(clock.tables, INPUT)
    span_ns, unit_ns = walls.span_ns(rank, device_id), clock.step_ns(rank, device_id)
    steps = span_ns / unit_ns if unit_ns and clock.verdict["basis"] != SPAN else None
    most_ns = walls.class_ns(rank, device_id, wall_class)
    return Price(
        span_ns=span_ns,
        wall_classes=(wall_class,),
        about_ns=max(min(round(cost_ns * (steps or 1.0)), most_ns), 0),
        about_basis="measured",
        steps_n=steps,
        step_unit=clock.unit,
    )


def slow_steps(clock: Clock) -> tuple[Record, bool] | None:
    """Return the slow steps by which the runs differ; None where they do not.

    Returns:
        The row of slow_steps of the GPU they come from, in the run that has more of them; and
        whether that is the input.
    """
    verdict = clock.verdict
    if verdict["word_reason"] not in (BURSTS, BOTH) or verdict["word"] not in (FASTER, SLOWER):
        return None
    n0, n1 = (verdict[f"{side}_slow_n"] for side in COMPARED)
    is_worse = n1 * verdict["baseline_steps_n"] > n0 * verdict["input_steps_n"]
    rows = records(clock.tables["slow_steps"])
    row = next((row for row in rows if row["run"] == (INPUT if is_worse else BASELINE)), None)
    return None if row is None else (row, is_worse)


def slow_words(clock: Clock) -> str | None:
    """Return how many steps are slow, on which rank, and what they have more of; None: see above.

    `SLOWER in bursts: 4 of 14 steps ..., rank 3 pauses in data`; `..., rank 3 paused in data`.
    """
    slow = slow_steps(clock)
    if slow is None:
        return None
    row, is_worse = slow
    words = f"{texts.SLOWER_BURSTS if is_worse else texts.FASTER_BURSTS}{count_words(clock)}"
    pauses, has = ("pauses", "has") if is_worse else ("paused", "had")
    cause = f"{has} more {quoted(row['detail'] or row['wall_class'])} in them"
    if row["wall_class"] == IDLE:
        cause = f"{pauses} in {quoted(row['range'])}" if row["range"] else pauses
    return f"{words}, rank {row['rank']} {cause}"


def count_words(clock: Clock) -> str:
    """Return how many steps are slow: `4 of 14 steps take more than twice the median`."""
    slow_n = clock.verdict["input_slow_n"]
    return texts.SLOW.format(
        slow=slow_n,
        steps=clock.verdict["input_steps_n"],
        before=clock.verdict["baseline_slow_n"],
        unit=clock.unit,
        take="takes" if slow_n == 1 else "take",
    )


def _of_bursts(clock: Clock) -> Iterator[Finding]:
    """Yield the slow steps of the input, where it has more of them."""
    slow = slow_steps(clock)
    if slow is None or not slow[1]:
        return
    (row, _), verdict = slow, clock.verdict
    rank, device_id, slow_ns = row["rank"], row["device_id"], row["excess_ns"] * row["slow_n"]
    cost_ns = slow_ns / max(row["steps_n"], 1)
    yield texts.RULES["bursts"].finding(
        price=_price(clock, rank, device_id, row["wall_class"], cost_ns),
        cause=Cause("host" if row["wall_class"] == IDLE else "rank", rank),
        fields={
            "words": slow_words(clock),
            "most": row["detail"] or row["wall_class"],
            "range": row["range"],
            "steps_n": verdict["input_steps_n"],
            **{f"{side}_slow_n": verdict[f"{side}_slow_n"] for side in COMPARED},
        },
        evidence=cells(
            "slow_steps",
            row,
            ("run", "rank", "device_id"),
            ("slow_n", "steps_n", "usual_ns", "excess_ns", "detail_ns"),
        ),
        rank=rank,
        device_id=device_id,
        impact_ns=round(slow_ns),
    )
