"""Findings about launches: storms, launch calls that wait, a GPU that waits for launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import (
    Record,
    Tables,
    percent,
    records,
    severity_of,
    span_of,
    window_of,
    worst_ranks,
)
from nsys_llm.taxonomy.api_classes import LAUNCH_CLASSES
from nsys_llm.view.text import format_count, format_ns, format_percent

from .texts import LAUNCH_BOUND_PCT, LEAST_NS, LOSS_PCT, MOSTLY_PCT, RULES


def launch_findings(tables: Tables) -> list[Finding]:
    """Return what the tables launches and api_classes tell about launching."""
    rows, idle_ns = records(tables["launches"]), _idle_in_launches(tables)
    return worst_ranks(
        found
        for row in rows
        for found in _about_launches(row, idle_ns.get((row["rank"], row["device_id"]), 0))
    )


def loss_severity(lost_ns: int, window_ns: int) -> str | None:
    """Return how bad it is to lose so much of a window; None if it is not worth a word."""
    return severity_of(percent(lost_ns, window_ns), LOSS_PCT) if lost_ns >= LEAST_NS else None


def _about_launches(row: Record, idle_ns: int) -> Iterator[Finding]:
    if row["storm"]:
        yield _storm(row)
    if row["launched_n"] is not None:
        yield from _blocked(row)
        yield from _launch_bound(row, idle_ns)


def _storm(row: Record) -> Finding:
    nodes_pct = 100.0 * row["graph_nodes_n"] / row["kernels_n"]
    in_graphs = nodes_pct >= MOSTLY_PCT
    peak = (row["peak_start_ns"], row["peak_start_ns"] + 100_000_000)
    return RULES["small_graph_kernels" if in_graphs else "launch_storm"].finding(
        severity="low" if in_graphs else "medium",
        details=f"{format_count(row['peak_kernels_n'])} kernels start within 100 ms "
        f"({format_count(row['rate_peak_100ms'])} a second), {format_ns(row['p50_ns'])} each "
        f"in the median; {format_count(row['under_5us_n'])} of "
        f"{format_count(row['kernels_n'])} are below 5 us, and "
        f"{format_percent(nodes_pct)} are nodes of graphs.",
        rank=row["rank"],
        device_id=row["device_id"],
        window_ns=peak,
        impact_ns=0 if in_graphs else int(row["launch_api_ns"] or 0),
    )


def _blocked(row: Record) -> Iterator[Finding]:
    window_ns = row["window_ns"]
    busy_ns = int(row["blocked_launch_busy_ns"]) - int(row["blocked_profiler_busy_ns"] or 0)
    idle_ns = int(row["blocked_launch_idle_ns"]) - int(row["blocked_profiler_idle_ns"] or 0)
    facts = (
        f"{format_count(row['blocked_launches_n'])} launch calls are longer than "
        f"{format_ns(row['blocked_over_ns'])} and take {format_ns(row['blocked_launch_ns'])} in "
        f"all threads together, at a window of {format_ns(window_ns)}: at least one is in them for "
        f"{format_ns(busy_ns)} while the GPU was busy and for "
        f"{format_ns(idle_ns)} while it was idle{_without_profiler(row)}."
    )
    place: dict[str, Any] = {
        "rank": row["rank"],
        "device_id": row["device_id"],
        "window_ns": span_of(row, "longest_launch_start_ns", "longest_launch_ns"),
    }
    if (severity := loss_severity(idle_ns, window_ns)) is not None:
        yield RULES["slow_launches"].finding(
            severity=severity,
            details=facts,
            impact_ns=idle_ns,
            **place,
        )
    if percent(busy_ns, window_ns) >= LOSS_PCT["low"]:
        yield RULES["launch_queue_full"].finding(
            severity="note",
            details=facts,
            impact_ns=busy_ns,
            **place,
        )


def _without_profiler(row: Record) -> str:
    """Say what of that the profiler took, where it took any."""
    took_ns = int(row["blocked_profiler_busy_ns"] or 0) + int(row["blocked_profiler_idle_ns"] or 0)
    return f"; the profiler held them for another {format_ns(took_ns)}" if took_ns else ""


def _idle_in_launches(tables: Tables) -> dict[tuple[int, int], int]:
    """Return how long each (rank, device) was idle while the rank was inside launch calls.

    Classes may overlap on several threads, but no more time than the GPU was idle is lost. The
    launch calls of several devices of one process cannot be told apart here: those are left out.
    """
    classes = tables["api_classes"]
    launching = classes[classes["class"].isin(LAUNCH_CLASSES)]
    launching = launching.assign(own_ns=launching["exposed_ns"] - launching["profiler_ns"])
    exposed_ns = launching.groupby("rank")["own_ns"].sum()
    devices_n = tables["launches"]["rank"].value_counts()
    return {
        (row["rank"], row["device_id"]): min(
            int(exposed_ns.get(row["rank"], 0)), int(row["window_ns"] - row["busy_ns"])
        )
        for row in records(tables["devices"])
        if devices_n.get(row["rank"], 0) == 1
    }


def _launch_bound(row: Record, idle_ns: int) -> Iterator[Finding]:
    idle_ns -= int(row["blocked_launch_idle_ns"]) - int(row["blocked_profiler_idle_ns"] or 0)
    share_pct = percent(idle_ns, row["window_ns"])
    severity = severity_of(share_pct, LAUNCH_BOUND_PCT)
    if severity is None:
        return
    queue = (
        "none of its kernels waited in the queue"
        if row["queue_p50_ns"] is None
        else f"kernels that queue wait {format_ns(row['queue_p50_ns'])} in the median"
    )
    yield RULES["launch_bound"].finding(
        severity=severity,
        details=f"For {format_ns(idle_ns)}, {format_percent(share_pct)} of its window, the GPU "
        "was idle while the host was inside launch calls. A call takes "
        f"{format_ns(row['api_p50_ns'])}, a kernel {format_ns(row['p50_ns'])} in the median; "
        f"{format_count(row['unqueued_n'])} of {format_count(row['launched_n'])} kernels started "
        f"before their call returned, and {queue}.",
        rank=row["rank"],
        device_id=row["device_id"],
        window_ns=window_of(row, "window_start_ns", "window_end_ns"),
        impact_ns=idle_ns,
    )
