"""Findings about API calls that hold the host: waits, blocking copies, polling, allocation.

A wait is judged by what it costs: host time in which the GPU was idle, or idle time that followed.
Time in calls that the GPU's work hides costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.view.text import format_count, format_ns, format_percent, quoted

from .host import (
    LOW_PCT,
    MOSTLY_PCT,
    REPEATS,
    Row,
    Tables,
    is_null,
    longest_call,
    or_zero,
    pct,
    rows_of,
    severity_of,
    worst_ranks,
)

#: Polling takes this share of one thread's time: a tenth of a core. Ours.
_POLLING_PCT: Final = 10.0
#: So many allocations a second are not those of a caching allocator that has settled; ours.
_ALLOCATIONS_PER_S: Final = 100.0


def wait_findings(tables: Tables) -> list[Finding]:
    """Return what the tables api_classes, rank_apis and os_waits tell about waits of the host."""
    classes = rows_of(tables["api_classes"])
    return [
        *worst_ranks(found for row in classes for found in _about_class(row, tables)),
        *worst_ranks(_allocations(tables)),
        *worst_ranks(_os_waits(tables)),
    ]


def _about_class(row: Row, tables: Tables) -> Iterator[Finding]:
    kind = row["class"]
    if kind == "host_block":
        yield from _waits(row, tables)
    elif kind == "sync_memop":
        yield from _blocking_copies(row, tables)
    elif kind == "poll":
        yield from _polling(row, tables)


def _waits(row: Row, tables: Tables) -> Iterator[Finding]:
    window_ns = row["window_ns"]
    inside_ns = row["union_ns"] - row["outside_ns"]
    # What a wait costs: the GPU idle inside it, or from inside it until new work comes.
    cost_ns = max(int(row["exposed_ns"]), int(or_zero(row["drained_ns"])))
    # While the profiler held the wait, both count it, and an unprofiled run would not.
    cost_ns = max(cost_ns - int(or_zero(row["profiler_ns"])), 0)
    severity = severity_of(cost_ns, window_ns)
    top, place = longest_call(row, tables)
    facts = (
        f"{format_count(row['calls_n'])} calls, most time in {quoted(top)}, take "
        f"{format_ns(inside_ns)} of a window of {format_ns(window_ns)}; "
        f"{format_ns(row['hidden_ns'])} of it the GPU was busy. "
        f"{format_count(row['drained_gaps_n'])} times the GPU ran out of work and got new only "
        f"when the wait was over: {format_ns(row['drained_ns'])} idle."
    )
    if severity is not None and row["steady_calls_n"] >= REPEATS:
        yield Finding(
            rule="sync_in_loop",
            severity=severity,
            title="Synchronisation in the loop lets the GPU run dry",
            evidence=facts,
            recommendation=(
                "Find what needs the result on the host (`.item()`, `.cpu()`, a printed loss, "
                "sampling on the CPU) and keep it on the GPU, or read it one step later from "
                "pinned memory behind an event."
            ),
            capture="--cudabacktrace=sync --sample=process-tree --python-backtrace=cuda",
            impact_ns=cost_ns,
            **place,
        )
    elif pct(inside_ns, window_ns) >= MOSTLY_PCT:
        yield Finding(
            rule="host_waits_for_gpu",
            severity="note",
            title="The host waits for the GPU most of the time, at little cost",
            evidence=facts,
            recommendation=(
                "The host is ahead of the GPU: shortening these waits wins nothing. Look at the "
                "kernels instead."
            ),
            impact_ns=cost_ns,
            **place,
        )


def _blocking_copies(row: Row, tables: Tables) -> Iterator[Finding]:
    inside_ns = row["union_ns"] - row["outside_ns"] - int(or_zero(row["profiler_ns"]))
    severity = severity_of(inside_ns, row["window_ns"])
    if severity is None or row["steady_calls_n"] < REPEATS:
        return
    top, place = longest_call(row, tables)
    yield Finding(
        rule="sync_memop",
        # The copy itself takes its time either way; what can be won is overlap.
        severity="low" if severity == "low" else "medium",
        title="Copies and fills that block the host, again and again",
        evidence=(
            f"{format_count(row['calls_n'])} calls without Async, most time in {quoted(top)}, hold "
            f"a thread for {format_ns(inside_ns)} of a window of {format_ns(row['window_ns'])}. "
            f"{format_count(row['drained_gaps_n'])} times the GPU had nothing to do until the call "
            f"was over: {format_ns(row['drained_ns'])} idle."
        ),
        tables=("api_classes", "rank_apis"),
        recommendation=(
            "Use the Async form on a stream of its own with pinned host memory, so that copies run "
            "beside kernels and the host can launch ahead."
        ),
        capture="--cudabacktrace=memory:0 --sample=process-tree",
        impact_ns=int(inside_ns),
        **{key: value for key, value in place.items() if key != "tables"},
    )


def _polling(row: Row, tables: Tables) -> Iterator[Finding]:
    share_pct = pct(row["union_ns"] - row["outside_ns"], row["window_ns"])
    if share_pct < _POLLING_PCT:
        return
    top, place = longest_call(row, tables)
    yield Finding(
        rule="polling",
        severity="low",
        title="Polling for the GPU burns CPU time",
        evidence=(
            f"{format_count(row['calls_n'])} calls, most time in {quoted(top)}, on "
            f"{format_count(row['threads_n'])} threads take {format_ns(row['thread_union_ns'])}: "
            f"{format_percent(share_pct)} of a window of {format_ns(row['window_ns'])}, "
            f"{format_count(row['steady_rate'])} calls a second."
        ),
        recommendation=(
            "Poll less often, or wait for an event made with cudaEventBlockingSync. A polling "
            "thread also takes the driver's lock, and the GIL if it is Python, from the thread "
            "that launches."
        ),
        impact_ns=int(row["thread_union_ns"]),
        **place,
    )


def _allocations(tables: Tables) -> Iterator[Finding]:
    classes = tables["api_classes"]
    found = classes[classes["class"].isin(("alloc", "free"))]
    for rank, own in found.groupby("rank"):
        steady_ns = int(own["steady_window_ns"].max())
        calls_n, time_ns = int(own["steady_calls_n"].sum()), int(own["steady_total_ns"].sum())
        rate, share_pct = calls_n * 1e9 / max(steady_ns, 1), pct(time_ns, steady_ns)
        if calls_n < REPEATS or (rate < _ALLOCATIONS_PER_S and share_pct < LOW_PCT):
            continue
        apis = tables["rank_apis"]
        names = apis[(apis["rank"] == rank) & apis["class"].isin(("alloc", "free"))]
        idle_ns = int((own["exposed_ns"] - own["profiler_ns"]).sum())
        yield Finding(
            rule="allocation_churn",
            severity="medium" if share_pct >= LOW_PCT else "low",
            scope="rank",
            title="Memory is allocated and freed in the loop",
            evidence=(
                f"{format_count(calls_n)} calls ({', '.join(map(quoted, names['api'][:4]))}) after "
                f"the first quarter of the window, {format_count(rate)} a second; they take "
                f"{format_ns(time_ns)}, {format_percent(share_pct)} of {format_ns(steady_ns)}. "
                f"In all of them together the GPU was idle for {format_ns(idle_ns)}."
            ),
            tables=("api_classes", "rank_apis"),
            recommendation=(
                "Allocate before the loop, or from a pool: PyTorch's caching allocator "
                "(expandable_segments:True against fragmentation), cudaMallocAsync with a release "
                "threshold, preallocated KV cache and workspaces."
            ),
            rank=int(rank),
            capture="--cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
            impact_ns=time_ns,
        )


def _os_waits(tables: Tables) -> Iterator[Finding]:
    windows = tables["launches"].groupby("rank")["window_ns"].max()
    for row in rows_of(tables["os_waits"]):
        # Where the profiler holds a CUDA call, the thread sits in the system too.
        idle_ns = int(row["launching_exposed_ns"]) - int(or_zero(row["launching_profiler_ns"]))
        severity = severity_of(idle_ns, windows.get(row["rank"], 0))
        if severity is None:
            continue
        start_ns = row["longest_start_ns"]
        yield Finding(
            rule="os_wait",
            severity="medium" if severity == "high" else severity,
            scope="rank",
            title="A launching thread sits in the operating system while the GPU is idle",
            evidence=(
                f"{quoted(row['function'])}: {format_ns(row['launching_ns'])} on threads that "
                f"launch GPU work, {format_ns(idle_ns)} of it while the GPU "
                f"was idle, in a window of {format_ns(windows[row['rank']])}."
            ),
            tables=("os_waits", "launches"),
            recommendation=(
                "A lock (futex, cond_wait: often Python's GIL), a read, or a wait for another "
                "process; look at the thread there, and move it off the thread that launches."
            ),
            rank=row["rank"],
            name=row["function"],
            window_ns=None
            if is_null(start_ns)
            else (int(start_ns), int(start_ns) + int(row["max_ns"])),
            capture="--trace=cuda,nvtx,osrt,python-gil --osrt-backtrace-threshold=100000",
            impact_ns=idle_ns,
        )
