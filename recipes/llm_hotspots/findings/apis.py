"""Findings about API calls that hold the host: waits, blocking copies, polling, allocation.

A wait is judged by what it costs: host time in which the GPU was idle, or idle time that followed.
Time in calls that the GPU's work hides costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import (
    Record,
    Tables,
    first_record,
    percent,
    records,
    span_of,
    worst_ranks,
)
from nsys_llm.view.text import format_count, format_ns, format_percent, quoted

from .launches import loss_severity
from .texts import ALLOCATIONS_PER_S, LOSS_PCT, MOSTLY_PCT, POLLING_PCT, REPEATS, RULES


def wait_findings(tables: Tables) -> list[Finding]:
    """Return what the tables api_classes, rank_apis and os_waits tell about waits of the host."""
    classes = records(tables["api_classes"])
    return [
        *worst_ranks(found for row in classes for found in _about_class(row, tables)),
        *worst_ranks(_allocations(tables)),
        *worst_ranks(_os_waits(tables)),
    ]


def _about_class(row: Record, tables: Tables) -> Iterator[Finding]:
    kind = row["class"]
    if kind == "host_block":
        yield from _waits(row, tables)
    elif kind == "sync_memop":
        yield from _blocking_copies(row, tables)
    elif kind == "poll":
        yield from _polling(row, tables)


def _waits(row: Record, tables: Tables) -> Iterator[Finding]:
    window_ns = row["window_ns"]
    inside_ns = row["union_ns"] - row["outside_ns"]
    # What a wait costs: the GPU idle inside it, or from inside it until new work comes.
    cost_ns = max(int(row["exposed_ns"]), int(row["drained_ns"] or 0))
    # While the profiler held the wait, both count it, and an unprofiled run would not.
    cost_ns = max(cost_ns - int(row["profiler_ns"] or 0), 0)
    severity = loss_severity(cost_ns, window_ns)
    top, place = _longest_call(row, tables)
    facts = (
        f"{format_count(row['calls_n'])} calls, most time in {quoted(top)}, take "
        f"{format_ns(inside_ns)} of a window of {format_ns(window_ns)}; "
        f"{format_ns(row['hidden_ns'])} of it the GPU was busy. "
        f"{format_count(row['drained_gaps_n'])} times the GPU ran out of work and got new only "
        f"when the wait was over: {format_ns(row['drained_ns'])} idle."
    )
    if severity is not None and row["steady_calls_n"] >= REPEATS:
        yield RULES["sync_in_loop"].finding(
            severity=severity,
            details=facts,
            impact_ns=cost_ns,
            **place,
        )
    elif percent(inside_ns, window_ns) >= MOSTLY_PCT:
        yield RULES["host_waits_for_gpu"].finding(
            severity="note",
            details=facts,
            impact_ns=cost_ns,
            **place,
        )


def _blocking_copies(row: Record, tables: Tables) -> Iterator[Finding]:
    inside_ns = row["union_ns"] - row["outside_ns"] - int(row["profiler_ns"] or 0)
    severity = loss_severity(inside_ns, row["window_ns"])
    if severity is None or row["steady_calls_n"] < REPEATS:
        return
    top, place = _longest_call(row, tables)
    yield RULES["sync_memop"].finding(
        # The copy itself takes its time either way; what can be won is overlap.
        severity="low" if severity == "low" else "medium",
        details=f"{format_count(row['calls_n'])} calls without Async, most time in {quoted(top)}, "
        f"hold a thread for {format_ns(inside_ns)} of a window of {format_ns(row['window_ns'])}. "
        f"{format_count(row['drained_gaps_n'])} times the GPU had nothing to do until the call was "
        f"over: {format_ns(row['drained_ns'])} idle.",
        impact_ns=int(inside_ns),
        **place,
    )


def _polling(row: Record, tables: Tables) -> Iterator[Finding]:
    share_pct = percent(row["union_ns"] - row["outside_ns"], row["window_ns"])
    if share_pct < POLLING_PCT:
        return
    top, place = _longest_call(row, tables)
    yield RULES["polling"].finding(
        severity="low",
        details=f"{format_count(row['calls_n'])} calls, most time in {quoted(top)}, on "
        f"{format_count(row['threads_n'])} threads take {format_ns(row['thread_union_ns'])}: "
        f"{format_percent(share_pct)} of a window of {format_ns(row['window_ns'])}, "
        f"{format_count(row['steady_rate'])} calls a second.",
        impact_ns=int(row["thread_union_ns"]),
        **place,
    )


def _allocations(tables: Tables) -> Iterator[Finding]:
    classes = tables["api_classes"]
    found = classes[classes["class"].isin(("alloc", "free"))]
    for rank, own in found.groupby("rank"):
        steady_ns = int(own["steady_window_ns"].max())
        calls_n, time_ns = int(own["steady_calls_n"].sum()), int(own["steady_total_ns"].sum())
        rate, share_pct = calls_n * 1e9 / max(steady_ns, 1), percent(time_ns, steady_ns)
        if calls_n < REPEATS or (rate < ALLOCATIONS_PER_S and share_pct < LOSS_PCT["low"]):
            continue
        apis = tables["rank_apis"]
        names = apis[(apis["rank"] == rank) & apis["class"].isin(("alloc", "free"))]
        idle_ns = int((own["exposed_ns"] - own["profiler_ns"]).sum())
        yield RULES["allocation_churn"].finding(
            severity="medium" if share_pct >= LOSS_PCT["low"] else "low",
            details=f"{format_count(calls_n)} calls ({', '.join(map(quoted, names['api'][:4]))}) "
            f"after the first quarter of the window, {format_count(rate)} a second; they take "
            f"{format_ns(time_ns)}, {format_percent(share_pct)} of {format_ns(steady_ns)}. In all "
            f"of them together the GPU was idle for {format_ns(idle_ns)}.",
            rank=int(rank),
            impact_ns=time_ns,
        )


def _os_waits(tables: Tables) -> Iterator[Finding]:
    windows = tables["launches"].groupby("rank")["window_ns"].max()
    for row in records(tables["os_waits"]):
        # Where the profiler holds a CUDA call, the thread sits in the system too.
        idle_ns = int(row["launching_exposed_ns"]) - int(row["launching_profiler_ns"] or 0)
        severity = loss_severity(idle_ns, windows.get(row["rank"], 0))
        if severity is None:
            continue
        yield RULES["os_wait"].finding(
            severity="medium" if severity == "high" else severity,
            details=f"{quoted(row['function'])}: {format_ns(row['launching_ns'])} on threads that "
            f"launch GPU work, {format_ns(idle_ns)} of it while the GPU "
            f"was idle, in a window of {format_ns(windows[row['rank']])}.",
            rank=row["rank"],
            name=row["function"],
            window_ns=span_of(row, "longest_start_ns", "max_ns"),
            impact_ns=idle_ns,
        )


def _longest_call(row: Record, tables: Tables) -> tuple[str, dict[str, Any]]:
    """Return the function of a class with the most time, and where its longest call is."""
    apis = tables["rank_apis"]
    mine = apis[(apis["rank"] == row["rank"]) & (apis["class"] == row["class"])]
    top = first_record(mine.sort_values(["total_ns", "api"], ascending=[False, True]))
    window = span_of(top, "longest_start_ns", "max_ns")
    return str(top["api"]), {"rank": row["rank"], "name": top["api"], "window_ns": window}
