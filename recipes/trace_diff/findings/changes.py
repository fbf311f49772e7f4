"""All changes of a step: of each class that holds a fifth of the difference, what explains it."""

from __future__ import annotations

from collections.abc import Iterator

from nsys_llm.report.causes import Cause
from nsys_llm.report.records import Tables
from nsys_llm.taxonomy.wall_classes import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    IDLE,
    PROFILER,
    WALL_CLASSES,
)

from .change import Change, ClassCost, Clock, Explained
from .communication import explain_communication
from .compute import explain_compute
from .copies import explain_copies
from .idle import explain_idle

#: Waiting is for what some rank does.
WAITING = frozenset({"waiting", "pair_waiting", "profiler_wait"})


def find_changes(tables: Tables) -> list[Change]:
    """Return the changes, largest first; waiting behind what it is for."""
    clock = Clock(tables)
    changes = list(_changes(tables, clock)) if clock.tells else []
    slower = (clock.verdict["change_ns"] or 0) > 0
    return sorted(
        changes,
        key=lambda change: (
            change.explained.rule in WAITING and any(item.explained.rank is not None
                                                     for item in changes),
            -change.cost.cost_ns * (1 if slower else -1),
            change.cost.wall_class,
        ),
    )  # fmt: skip


def _changes(tables: Tables, clock: Clock) -> Iterator[Change]:
    for wall_class in WALL_CLASSES:
        cost = clock.cost(wall_class)
        if cost is not None:
            yield Change(cost, _explained(tables, clock, cost), clock.unit)


def _explained(tables: Tables, clock: Clock, cost: ClassCost) -> Explained:
    if cost.wall_class == COMPUTE:
        return explain_compute(tables, clock, cost)
    if cost.wall_class == COMMUNICATION:
        return explain_communication(tables, cost)
    if cost.wall_class == COPIES:
        return explain_copies(tables, clock, cost)
    if cost.wall_class == IDLE:
        return explain_idle(tables, clock, cost)
    assert cost.wall_class == PROFILER
    return Explained("profiler", "the profiler wrote its buffers", Cause("profiler"))
