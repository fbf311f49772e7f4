"""Findings on CUDA API calls: functions with a tail, and what first launches cost the host."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from nsys_llm.numeric.tails import OUTLIER_RATIO
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, records, severity_of
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from .texts import API_COST_PCT, MOST, RULES

#: Share of what is lost from which the profiler's part of the same calls is said; ours.
_WORTH_A_WORD: Final = 0.1
#: Classes whose calls are as long as what they wait for; their tails are the GPU's or a peer's.
_WAITING: Final = ("host_block", "sync_memop")


def api_findings(tables: Tables) -> list[Finding]:
    """Return the findings on api_tails and rank_api_tails."""
    window_ns = int(tables["tail_ranks"].groupby("rank")["window_ns"].max().sum())
    if not window_ns:
        return []
    return [
        *_tails(tables, window_ns),
        *_first_calls(tables, window_ns),
        *_loading(tables, window_ns),
    ]


def _tails(tables: Tables, window_ns: int) -> list[Finding]:
    found = []
    first_ns = _first_calls_ns(tables["rank_api_tails"])
    for row in records(tables["api_tails"]):
        # First calls set things up, and what loading costs is told by itself.
        once_ns = max(row["loading_excess_ns"], first_ns.get(row["api"], 0))
        lost_ns = max(row["outlier_excess_ns"] - once_ns, 0)
        severity = severity_of(100.0 * lost_ns / window_ns, API_COST_PCT)
        if severity is not None:
            found.append(_tail(tables, row, severity, lost_ns, window_ns))
    return sorted(found, key=lambda one: -one.impact_ns)[:MOST]


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


def _tail(tables: Tables, row: Record, severity: str, lost_ns: int, window_ns: int) -> Finding:
    ranks = tables["rank_api_tails"]
    own = ranks[ranks["api"] == row["api"]]
    own = own.sort_values("net_max_ns", ascending=False, kind="stable")
    longest = records(own.head(1))[0]
    waits = row["class"] in _WAITING
    share = format_percent(100.0 * row["outliers_n"] / row["calls_n"])
    rule = RULES["api_wait_tail" if waits else "api_tail"]
    return rule.finding(
        severity="low" if waits else severity,
        details=f"{format_count(row['outliers_n'])} of {counted(row['calls_n'], 'call')} ({share})"
        f" take more than twice the median of {format_ns(row['p50_ns'])}, and lose "
        f"{format_ns(lost_ns)} on all ranks together, {format_percent(100 * lost_ns / window_ns)} "
        f"of the time from the first GPU operation to the last. The longest is on rank "
        f"{longest['rank']}.{_profilers(row)}",
        fields={
            "api": quoted(row["api"]),
            "longest": format_ns(row["net_max_ns"]),
            "times": format_count(row["max_p50"]),
        },
        case=row["class"] if row["class"] in rule.cases else None,
        name=row["api"],
        **_place(longest),
        impact_ns=lost_ns,
    )


def _first_calls(tables: Tables, window_ns: int) -> list[Finding]:
    """Return the function whose first calls cost most; mostly it is the one that sets CUDA up."""
    lost_ns = _first_calls_ns(tables["rank_api_tails"])
    name = max(lost_ns, key=lambda one: (lost_ns[one], one), default=None)
    if name is None or severity_of(100.0 * lost_ns[name] / window_ns, API_COST_PCT) is None:
        return []
    ranks = tables["rank_api_tails"]
    own = ranks[ranks["api"] == name].sort_values("first_ns", ascending=False, kind="stable")
    row = records(own.head(1))[0]
    start_ns, first_ns = row["first_start_ns"], row["first_ns"]
    return [
        RULES["slow_first_call"].finding(
            severity="note",
            details=f"On rank {row['rank']}; the median of its later calls is "
            f"{format_ns(row['usual_p50_ns'])}. First calls of it take {format_ns(lost_ns[name])} "
            "beyond that on all ranks together.",
            fields={"api": quoted(name), "duration": format_ns(first_ns)},
            rank=row["rank"],
            name=name,
            window_ns=(start_ns, start_ns + first_ns),
            impact_ns=lost_ns[name],
        )
    ]


def _loading(tables: Tables, window_ns: int) -> list[Finding]:
    apis = tables["api_tails"]
    lost_ns, calls_n = int(apis["loading_excess_ns"].sum()), int(apis["loading_n"].sum())
    severity = severity_of(100.0 * lost_ns / window_ns, API_COST_PCT)
    if severity is None:
        return []
    ranks = tables["rank_api_tails"]
    by_rank = ranks.groupby("rank", sort=True)["loading_excess_ns"].sum()
    most = max(by_rank.index.tolist(), key=lambda rank: (by_rank[rank], -rank))
    worst = records(apis.sort_values("loading_excess_ns", ascending=False, kind="stable").head(1))
    return [
        RULES["kernel_loading"].finding(
            severity=severity,
            details=f"{counted(calls_n, 'call')} made the first launch of a kernel on a device; "
            f"they take {format_ns(lost_ns)} more than the functions' later calls, most of it in "
            f"{quoted(worst[0]['api'])} ({_usual_words(worst[0])}). Rank "
            f"{most} has {format_ns(by_rank[most])} of it.",
            fields={"lost": format_ns(lost_ns)},
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
