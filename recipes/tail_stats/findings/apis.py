"""Findings on CUDA API calls: functions with a tail, and what first launches cost the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from nsys_llm.numeric.tails import OUTLIER_RATIO
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, records, severity_of
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

#: Share of the window, over all ranks, that a host thread loses in a tail, in percent; ours.
_COST_PCT: Final = {"medium": 1.0, "low": 0.1}
_MOST: Final = 3
#: Share of what is lost from which the profiler's part of the same calls is said; ours.
_WORTH_A_WORD: Final = 0.1
#: Classes whose calls are as long as what they wait for; their tails are the GPU's or a peer's.
_WAITING: Final = ("host_block", "sync_memop")

_ADVICE: Final = {
    "alloc": "Allocate once and keep it: a caching allocator, cudaMallocAsync with a memory pool "
    "that keeps its memory (cudaMemPoolAttrReleaseThreshold), buffers that fit the largest batch.",
    "free": "Freeing may wait for the GPU: keep buffers, or free them in stream order "
    "(cudaFreeAsync).",
    "launch": "A launch takes long when the launch queue is full, or when another thread holds "
    "the lock of the context: see what the GPU and the other threads do at that time. CUDA graphs "
    "need fewer launches.",
    "graph_launch": "The first launches of a graph upload it (cudaGraphUpload does so before); "
    "later ones wait while an earlier launch of the same graph still runs.",
    "memcpy": "Asynchronous copies from or to pageable memory are staged by the host: pin the "
    "memory.",
}
_OTHER_ADVICE: Final = (
    "See in the timeline what the other threads and the GPU do during the longest of these calls."
)
_WAIT_ADVICE: Final = (
    "Its duration is that of what it waits for: see which kernel or copy ends the longest wait, "
    "and whether the host could have queued the next work before."
)

_Tables = Mapping[str, pd.DataFrame]


def api_findings(tables: _Tables) -> list[Finding]:
    """Return the findings on api_tails and rank_api_tails."""
    window_ns = int(tables["tail_ranks"].groupby("rank")["window_ns"].max().sum())
    if not window_ns:
        return []
    return [
        *_tails(tables, window_ns),
        *_first_calls(tables, window_ns),
        *_loading(tables, window_ns),
    ]


def _tails(tables: _Tables, window_ns: int) -> list[Finding]:
    found = []
    first_ns = _first_calls_ns(tables["rank_api_tails"])
    for row in records(tables["api_tails"]):
        # First calls set things up, and what loading costs is told by itself.
        once_ns = max(row["loading_excess_ns"], first_ns.get(row["api"], 0))
        lost_ns = max(row["outlier_excess_ns"] - once_ns, 0)
        severity = severity_of(100.0 * lost_ns / window_ns, _COST_PCT)
        if severity is not None:
            found.append(_tail(tables, row, severity, lost_ns, window_ns))
    return sorted(found, key=lambda one: -one.impact_ns)[:_MOST]


def _first_calls_ns(ranks: pd.DataFrame) -> dict[str, int]:
    """Return by function what slow first calls, one a rank, take beyond the median of later ones.

    Waits are left out: the first one is as long as the work before it.
    """
    ranks = ranks[~ranks["class"].isin(_WAITING)]
    first_ns = ranks["first_ns"] - ranks["first_profiler_ns"]
    slow = ranks[(first_ns > OUTLIER_RATIO * ranks["usual_p50_ns"]).fillna(False)]
    beyond = (first_ns[slow.index] - slow["usual_p50_ns"]).astype("float64")
    sums = beyond.groupby(slow["api"]).sum()
    return {str(name): round(value) for name, value in sums.items()}


def _tail(tables: _Tables, row: Record, severity: str, lost_ns: int, window_ns: int) -> Finding:
    ranks = tables["rank_api_tails"]
    own = ranks[ranks["api"] == row["api"]]
    own = own.sort_values("net_max_ns", ascending=False, kind="stable")
    longest = records(own.head(1))[0]
    waits = row["class"] in _WAITING
    share = format_percent(100.0 * row["outliers_n"] / row["calls_n"])
    return Finding(
        rule="api_wait_tail" if waits else "api_tail",
        severity="low" if waits else severity,
        scope="api",
        title=f"{quoted(row['api'])} takes up to {format_ns(row['net_max_ns'])}, "
        f"{format_count(row['max_p50'])} times its median",
        evidence=f"{format_count(row['outliers_n'])} of {counted(row['calls_n'], 'call')} ({share})"
        f" take more than twice the median of {format_ns(row['p50_ns'])}, and lose "
        f"{format_ns(lost_ns)} on all ranks together, {format_percent(100 * lost_ns / window_ns)} "
        f"of the time from the first GPU operation to the last. The longest is on rank "
        f"{longest['rank']}.{_profilers(row)}",
        tables=("api_tails", "rank_api_tails"),
        recommendation=_WAIT_ADVICE if waits else _ADVICE.get(row["class"], _OTHER_ADVICE),
        name=row["api"],
        **_place(longest),
        capture=None if waits else "--cudabacktrace=all:100000 --sample=process-tree",
        impact_ns=lost_ns,
    )


def _first_calls(tables: _Tables, window_ns: int) -> list[Finding]:
    """Return the function whose first calls cost most; mostly it is the one that sets CUDA up."""
    lost_ns = _first_calls_ns(tables["rank_api_tails"])
    name = max(lost_ns, key=lambda one: (lost_ns[one], one), default=None)
    if name is None or severity_of(100.0 * lost_ns[name] / window_ns, _COST_PCT) is None:
        return []
    ranks = tables["rank_api_tails"]
    own = ranks[ranks["api"] == name].sort_values("first_ns", ascending=False, kind="stable")
    row = records(own.head(1))[0]
    start_ns, first_ns = row["first_start_ns"], row["first_ns"]
    return [
        Finding(
            rule="slow_first_call",
            severity="note",
            scope="api",
            title=f"The first {quoted(name)} takes {format_ns(first_ns)}",
            evidence=f"On rank {row['rank']}; the median of its later calls is "
            f"{format_ns(row['usual_p50_ns'])}. First calls of it take {format_ns(lost_ns[name])} "
            "beyond that on all ranks together.",
            tables=("rank_api_tails",),
            recommendation="The first calls make the context and load libraries. Leave them out of "
            "what is measured: --filter-time from later on, or --skip-warmup.",
            rank=row["rank"],
            name=name,
            window_ns=(start_ns, start_ns + first_ns),
            impact_ns=lost_ns[name],
        )
    ]


def _loading(tables: _Tables, window_ns: int) -> list[Finding]:
    apis = tables["api_tails"]
    lost_ns, calls_n = int(apis["loading_excess_ns"].sum()), int(apis["loading_n"].sum())
    severity = severity_of(100.0 * lost_ns / window_ns, _COST_PCT)
    if severity is None:
        return []
    ranks = tables["rank_api_tails"]
    by_rank = ranks.groupby("rank", sort=True)["loading_excess_ns"].sum()
    most = max(by_rank.index.tolist(), key=lambda rank: (by_rank[rank], -rank))
    worst = records(apis.sort_values("loading_excess_ns", ascending=False, kind="stable").head(1))
    return [
        Finding(
            rule="kernel_loading",
            severity=severity,
            scope="api",
            title=f"First launches of kernels hold the host for {format_ns(lost_ns)}",
            evidence=f"{counted(calls_n, 'call')} made the first launch of a kernel on a device; "
            f"they take {format_ns(lost_ns)} more than the functions' later calls, most of it in "
            f"{quoted(worst[0]['api'])} ({_usual_words(worst[0])}). Rank "
            f"{most} has {format_ns(by_rank[most])} of it.",
            tables=("api_tails", "rank_api_tails"),
            recommendation="The driver loads a kernel's code when it is first launched. Run every "
            "shape once before serving or timing, or load all at the start with "
            "CUDA_MODULE_LOADING=EAGER.",
            rank=most,
            name=worst[0]["api"],
            impact_ns=lost_ns,
        )
    ]


def _usual_words(row: Record) -> str:
    if row["usual_p50_ns"] is None:
        return "it has no later call, so all of its time counts"
    return f"median of its later calls {format_ns(row['usual_p50_ns'])}"


def _profilers(row: Record) -> str:
    """Say what of the calls is left out of all that, because the profiler took it."""
    if row["profiler_ns"] < _WORTH_A_WORD * row["outlier_excess_ns"]:
        return ""
    return (
        f" {format_ns(row['profiler_ns'])} in these calls is the profiler's own work and not "
        f"counted here; with it the longest takes {format_ns(row['max_ns'])}."
    )


def _place(row: Record) -> dict[str, Any]:
    """Return rank and window of the longest call of a row, as fields of a finding."""
    start_ns = row["net_longest_start_ns"]
    return {"rank": row["rank"], "window_ns": (start_ns, start_ns + row["net_max_ns"])}
