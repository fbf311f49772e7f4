"""Findings about launches: storms, launch calls that wait, a GPU that waits for launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from nsys_llm.report.findings import Finding
from nsys_llm.taxonomy.api_classes import LAUNCH_CLASSES
from nsys_llm.view.text import format_count, format_ns, format_percent

from .host import (
    LOW_PCT,
    MOSTLY_PCT,
    Row,
    Tables,
    is_null,
    or_zero,
    pct,
    rows_of,
    severity_of,
    span_of,
    worst_ranks,
)

#: The GPU waits for launches if it idles this share of its window inside launch calls; ours.
_LAUNCH_BOUND_PCT: Final = 10.0
#: From here on it is most of what is wrong: what nsys-llm-explainer 0.1.0 calls high idle time.
_LAUNCH_BOUND_HIGH_PCT: Final = 40.0


def launch_findings(tables: Tables) -> list[Finding]:
    """Return what the tables launches and api_classes tell about launching."""
    rows, idle_ns = rows_of(tables["launches"]), _idle_in_launches(tables)
    return worst_ranks(
        found
        for row in rows
        for found in _about_launches(row, idle_ns.get((row["rank"], row["device_id"]), 0))
    )


def _about_launches(row: Row, idle_ns: int) -> Iterator[Finding]:
    if row["storm"]:
        yield _storm(row)
    if not is_null(row["launched_n"]):
        yield from _blocked(row)
        yield from _launch_bound(row, idle_ns)


def _storm(row: Row) -> Finding:
    nodes_pct = 100.0 * row["graph_nodes_n"] / row["kernels_n"]
    in_graphs = nodes_pct >= MOSTLY_PCT
    peak = (row["peak_start_ns"], row["peak_start_ns"] + 100_000_000)
    return Finding(
        rule="small_graph_kernels" if in_graphs else "launch_storm",
        severity="low" if in_graphs else "medium",
        scope="device",
        title="Many small kernels inside CUDA graphs" if in_graphs else "Launch storm",
        evidence=(
            f"{format_count(row['peak_kernels_n'])} kernels start within 100 ms "
            f"({format_count(row['rate_peak_100ms'])} a second), {format_ns(row['p50_ns'])} each "
            f"in the median; {format_count(row['under_5us_n'])} of "
            f"{format_count(row['kernels_n'])} are below 5 us, and "
            f"{format_percent(nodes_pct)} are nodes of graphs."
        ),
        tables=("launches", "kernels"),
        recommendation=(
            "Launching is paid already; fuse the small kernels (torch.compile, fused norm and "
            "activation kernels), since each still costs its ramp-up and drain."
            if in_graphs
            else "Replay the step as a CUDA graph, and fuse small kernels (torch.compile, fused "
            "norm and activation kernels); each launch costs the host some microseconds."
        ),
        rank=row["rank"],
        device_id=row["device_id"],
        window_ns=peak,
        impact_ns=0 if in_graphs else int(or_zero(row["launch_api_ns"])),
    )


def _blocked(row: Row) -> Iterator[Finding]:
    window_ns, longest = row["window_ns"], None
    if not is_null(row["longest_launch_ns"]):
        start_ns = int(row["longest_launch_start_ns"])
        longest = (start_ns, start_ns + int(row["longest_launch_ns"]))
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
        "scope": "device",
        "rank": row["rank"],
        "device_id": row["device_id"],
        "window_ns": longest,
        "tables": ("launches",),
    }
    if (severity := severity_of(idle_ns, window_ns)) is not None:
        yield Finding(
            rule="slow_launches",
            severity=severity,
            title="Slow launch calls leave the GPU idle",
            evidence=facts,
            recommendation=(
                "Look at the longest of them: lazy loading of a kernel's code (warm up all shapes, "
                "or set CUDA_MODULE_LOADING=EAGER), a lock that another thread holds, or a host "
                "that was taken off its core."
            ),
            capture="--cudabacktrace=kernel:100000 --sample=process-tree --trace=cuda,nvtx,osrt",
            impact_ns=idle_ns,
            **place,
        )
    if pct(busy_ns, window_ns) >= LOW_PCT:
        yield Finding(
            rule="launch_queue_full",
            severity="note",
            title="The host waits for room in the launch queue",
            evidence=facts,
            recommendation=(
                "The GPU is the bottleneck there, and loses nothing. The host is stuck in the "
                "call, though: what it should do meanwhile (scheduling, sampling, I/O) belongs on "
                "another thread."
            ),
            impact_ns=busy_ns,
            **place,
        )


def _without_profiler(row: Row) -> str:
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
        for row in rows_of(tables["devices"])
        if devices_n.get(row["rank"], 0) == 1
    }


def _launch_bound(row: Row, idle_ns: int) -> Iterator[Finding]:
    idle_ns -= int(row["blocked_launch_idle_ns"]) - int(row["blocked_profiler_idle_ns"] or 0)
    share_pct = pct(idle_ns, row["window_ns"])
    if share_pct < _LAUNCH_BOUND_PCT:
        return
    queue = (
        "none of its kernels waited in the queue"
        if is_null(row["queue_p50_ns"])
        else f"kernels that queue wait {format_ns(row['queue_p50_ns'])} in the median"
    )
    yield Finding(
        rule="launch_bound",
        severity="high" if share_pct >= _LAUNCH_BOUND_HIGH_PCT else "medium",
        scope="device",
        title="The GPU waits for kernel launches",
        evidence=(
            f"For {format_ns(idle_ns)}, {format_percent(share_pct)} of its window, the GPU was "
            f"idle while the host was inside launch calls. A call takes "
            f"{format_ns(row['api_p50_ns'])}, a kernel {format_ns(row['p50_ns'])} in the median; "
            f"{format_count(row['unqueued_n'])} of {format_count(row['launched_n'])} kernels "
            f"started before their call returned, and {queue}."
        ),
        tables=("launches", "api_classes"),
        recommendation=(
            "Launch less: CUDA graphs for decode steps, fused kernels, larger batches. "
            "Launch ahead: no synchronisation between steps."
        ),
        rank=row["rank"],
        device_id=row["device_id"],
        window_ns=span_of(row),
        impact_ns=idle_ns,
    )
