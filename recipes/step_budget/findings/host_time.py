"""Whose host time on the path it is, how much, and which place holds half of it: host_states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Final

from nsys_llm.critical_path.path.classes import CLASS_NAMES, HOST_NO_CUDA
from nsys_llm.report.findings import Evidence, claim
from nsys_llm.report.host_words import Waited
from nsys_llm.report.records import Tables, records
from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.trace.steps import CUDA_CALL
from nsys_llm.view.text import quoted, ranks_words

#: A rank is named if it has so much of the time; ours.
_LEAST_SHARE: Final = 0.6
_NO_CUDA: Final = CLASS_NAMES[HOST_NO_CUDA]


def host_time(
    tables: Tables,
    late: int | None,
    gain_ns: float | None,
    behind: str | None = None,
    *,
    once: bool = False,
) -> tuple[dict[str, Any], tuple[Evidence, ...]]:
    """Return words on the time of hosts on the path, a late rank's where that has most, and cells.

    Args:
        gain_ns: What it may gain a step; None where nobody knows. A place that holds half of both
            is named in the title.
        behind: API function of the wait that it lies behind, with devices that idle; None: all.
        once: Whether one step has nearly all of it: all times are then of the run, not of a step.

    Returns:
        Fields of the templates; and their numbers: `path_ns`, all of it a step, `most_ns`, the part
        in the place with most of it, and `shown_ns`, that of the two which the title has.
    """
    states, column = tables["host_states"], "time_ns" if behind is None else "idle_ns"
    states = states if behind is None else states[states["behind"] == behind]
    ranks = _ranks(states.groupby("rank")[column].sum().to_dict(), late)
    where: dict[str, Any] = {"rank": ranks if len(ranks) > 1 else ranks[0]}
    where |= {} if behind is None else {"behind": behind}
    counted = claim(tables, "steps_n", "host_states", "steps_n", "cell")
    steps, times = (None, counted.value) if once else (counted, 1)
    of = partial(claim, tables)
    path = of("path_ns", "host_states", column, "sum", steps, **where)
    rows = Waited(records(states[states["rank"].isin(ranks)]), (), tuple(where.items()))
    chosen = _place(rows, column)
    (*_, key), (*_, name) = chosen.keys(), chosen.values()
    most = of("most_ns", "host_states", column, "sum", steps, **where, **chosen)
    there = reduce(lambda some, column: some.where(column, chosen[column]), chosen, rows)
    said = there.said if key == "range" else ""
    place = rows.where_words(name)
    fields: dict[str, Any] = {"whose": _whose(tables, ranks, late, behind), "place": place + said}
    limit_ns = 0.5 * max(path.value, times * (gain_ns or 0.0))
    if most.value < limit_ns:
        fields |= {"where": " on the critical path", "host_advice": advice_on(call=behind)}
        return fields, (path, most, replace(path, name="shown_ns"), *there.evidence)
    shown, state, function = replace(most, name="shown_ns"), *there.doing[:2]
    fields["where"] = place + said
    if said and function is not None:  # named in the title if it holds half by itself
        doing = {**chosen, "state": state, "detail": function}
        inner = of("shown_ns", "host_states", column, "sum", steps, **where, **doing)
        is_named = inner.value >= limit_ns
        shown = inner if is_named else shown
        fields["where"] = f" in {quoted(function)}{place}" if is_named else place
    call = name if key == "detail" else behind
    fields["host_advice"] = there.advice or advice_on(range=name, call=call)
    return fields, (path, most, shown, *there.evidence)


def _ranks(times_ns: Mapping[Any, int], late: int | None) -> tuple[int, ...]:
    """Return the late rank where it has most of some time, else all, the largest first."""
    ranks = sorted((rank for rank, ns in times_ns.items() if ns), key=lambda rank: -times_ns[rank])
    if late is not None and times_ns.get(late, 0) >= _LEAST_SHARE * sum(times_ns.values()):
        return (late,)
    return tuple(ranks)


def _whose(tables: Tables, ranks: tuple[int, ...], late: int | None, behind: str | None) -> str:
    """Return whose host it is, as a title begins; no rank that is like others is named alone."""
    if ranks == (late,) or (behind is None and tables["wall"]["rank"].nunique() == 1):
        return f"Rank {ranks[0]}'s host"
    if behind is not None or len(ranks) == 1:
        return "Host"
    return f"Hosts of {ranks_words(ranks)}"


def _place(rows: Waited, column: str) -> dict[str, str | None]:
    """Return what chooses the rows of the range or call with most of some time, its name last."""
    sums = Counter[tuple[str, str | None]]({("range", None): 0})
    for row in rows.states:
        key = "range" if row["cause"] == _NO_CUDA else "detail"
        # The way to the GPU, and the profiler, are no place.
        if key == "range" or row["detail"] is not None:
            sums[key, row[key]] += row[column]
    (key, name), _ = max(sums.items(), key=lambda item: (item[1], str(item[0])))
    return {**({"cause": _NO_CUDA} if key == "range" else {"state": CUDA_CALL}), key: name}
