"""Remarks on what of the idle time is the profiler's, or not known."""

from __future__ import annotations

from functools import partial

from nsys_llm.report.findings import Evidence, Finding, cells, claim
from nsys_llm.report.records import Record, Tables, percent, records

from .texts import COPIES_SEEN_PCT, COPY_CALLS, NO_API_PCT, PROFILER_PCT, RULES

_GPU = ("rank", "device_id")


def capture_findings(tables: Tables) -> list[Finding]:
    """Return what the tables devices, gaps and rank_causes do not hold, or hold of the profiler."""
    return [
        *_profiler(tables),
        *_unknown_launches(tables),
        *_missing_copies(tables),
    ]


def _profiler(tables: Tables) -> list[Finding]:
    devices = records(tables["devices"])
    shares = [(percent(row["overhead_ns"], row["window_ns"]), row) for row in devices]
    shares = [(share, row) for share, row in shares if share >= PROFILER_PCT]
    if not shares:
        return []
    _, row = max(shares, key=lambda item: item[0])
    gap = _most_overhead(tables, row)
    window = row if gap is None else gap
    start, end = ("window_start_ns", "window_end_ns") if gap is None else ("start_ns", "end_ns")
    of = partial(claim, tables, rank=row["rank"], device_id=row["device_id"])
    window_ns = of("window_ns", "devices", "window_ns", "cell")
    evidence: tuple[Evidence, ...] = (
        of("overhead_ns", "devices", "overhead_ns", "cell"),
        of("share_pct", "devices", "overhead_ns", "sum", window_ns),
    )
    columns = ("profiler_overhead_ns", "duration_ns")
    if gap is not None:
        evidence += cells("gaps", gap, (*_GPU, "start_ns"), columns)
    return [
        RULES["profiler_in_gaps"].finding(
            fields={} if gap else dict.fromkeys(columns),
            evidence=evidence,
            rank=int(row["rank"]),
            device_id=int(row["device_id"]),
            window_ns=(int(window[start]), int(window[end])),
            impact_ns=int(row["overhead_ns"]),
        )
    ]


def _most_overhead(tables: Tables, device: Record) -> Record | None:
    """Return the gap of a GPU with most of the profiler's work, of those that are listed."""
    gaps = tables["gaps"]
    gaps = gaps[(gaps["rank"] == device["rank"]) & (gaps["device_id"] == device["device_id"])]
    gaps = gaps[gaps["profiler_overhead_ns"] > 0].sort_values(
        ["profiler_overhead_ns", "start_ns"], ascending=[False, True]
    )
    return records(gaps.head(1))[0] if len(gaps) else None


def _unknown_launches(tables: Tables) -> list[Finding]:
    causes = tables["rank_causes"]
    causes = causes[causes["cause"] == "no_api"]
    unknown_ns = causes.groupby(list(_GPU), sort=True)["idle_ns"].sum()
    worst: tuple[int, float, Record] | None = None
    for row in records(tables["devices"]):
        # What was launched before the capture began is cut off: no setting records its launch.
        cut_ns = row["before_capture_ns"]
        open_ns = int(unknown_ns.get((row["rank"], row["device_id"]), 0)) - cut_ns
        share = percent(open_ns, row["idle_ns"] - cut_ns)
        if share >= NO_API_PCT and percent(open_ns, row["window_ns"]) >= 1.0:
            worst = max(worst or (0, 0.0, row), (open_ns, share, row), key=lambda item: item[0])
    if worst is None:
        return []
    open_ns, _, row = worst
    of = partial(claim, tables, rank=row["rank"], device_id=row["device_id"])
    idle = of("idle_ns", "devices", "idle_ns", "cell")
    return [
        RULES["idle_without_launch"].finding(
            evidence=(
                of("share_pct", "rank_causes", "idle_ns", "sum", idle, cause="no_api"),
                of("open_ns", "rank_causes", "idle_ns", cause="no_api"),
                of("before_capture_ns", "devices", "before_capture_ns", "cell"),
            ),
            rank=int(row["rank"]),
            device_id=int(row["device_id"]),
            impact_ns=open_ns,
        )
    ]


def _missing_copies(tables: Tables) -> list[Finding]:
    columns = ["rank", "copy_calls_n", "copies_seen_n", "copies_cut_n"]
    ranks = tables["devices"][columns].drop_duplicates()
    # What the end of the capture cut is not missing, and no flag would record it.
    ranks = ranks.assign(calls_n=ranks["copy_calls_n"] - ranks["copies_cut_n"])
    few = ranks[ranks["calls_n"] >= COPY_CALLS]
    few = few[100.0 * few["copies_seen_n"] < COPIES_SEEN_PCT * few["calls_n"]]
    if few.empty:
        return []
    row = records(few.loc[[(few["calls_n"] - few["copies_seen_n"]).idxmax()]])[0]
    return [
        RULES["copies_not_traced"].finding(
            evidence=(
                *cells("devices", row, ("rank",), ("copies_seen_n", "copies_cut_n")),
                claim(
                    *(tables, "calls_n", "devices", "copy_calls_n-copies_cut_n", "cell"),
                    rank=row["rank"],
                ),
            ),
            ranks=tuple(int(rank) for rank in few["rank"]),
            rank=int(row["rank"]),
        )
    ]
