"""Remarks on what of the idle time is the profiler's, or not known."""

from __future__ import annotations

from functools import partial
from typing import Any

from nsys_llm.report.findings import Evidence, Finding, cells, claim
from nsys_llm.report.records import Record, Tables, percent, records, window_of

from .texts import COPIES_SEEN_PCT, COPY_CALLS, NO_API_PCT, PROFILER_PCT, RULES

_GPU = ("rank", "device_id")


def capture_findings(tables: Tables) -> list[Finding]:
    """Return what the tables devices, gaps and rank_causes do not hold, or hold of the profiler."""
    return [*_profiler(tables), *_unknown_launches(tables), *_missing_copies(tables)]


def _profiler(tables: Tables) -> list[Finding]:
    devices = records(tables["devices"])
    shares = [percent(row["overhead_ns"], row["window_ns"]) for row in devices]
    if max(shares, default=0.0) < PROFILER_PCT:
        return []
    row = devices[shares.index(max(shares))]
    place: dict[str, Any] = {"rank": int(row["rank"]), "device_id": int(row["device_id"])}
    gaps = tables["gaps"]
    gaps = gaps[(gaps["rank"] == place["rank"]) & (gaps["device_id"] == place["device_id"])]
    gaps = gaps[gaps["profiler_overhead_ns"] > 0].sort_values(
        ["profiler_overhead_ns", "start_ns"], ascending=[False, True]
    )
    gap = next(iter(records(gaps.head(1))), None)
    window = window_of(row, "window_start_ns", "window_end_ns")
    of = partial(claim, tables, **place)
    window_ns = of("window_ns", "devices", "window_ns", "cell")
    evidence: tuple[Evidence, ...] = (
        of("overhead_ns", "devices", "overhead_ns", "cell"),
        of("share_pct", "devices", "overhead_ns", "sum", window_ns),
    )
    columns = ("profiler_overhead_ns", "duration_ns")
    if gap is not None:
        evidence += cells("gaps", gap, (*_GPU, "start_ns"), columns)
        window = window_of(gap, "start_ns", "end_ns")
    return [
        RULES["profiler_in_gaps"].finding(
            fields={} if gap else dict.fromkeys(columns),
            evidence=evidence,
            window_ns=window,
            impact_ns=int(row["overhead_ns"]),
            **place,
        )
    ]


def _unknown_launches(tables: Tables) -> list[Finding]:
    causes = tables["rank_causes"]
    causes = causes[causes["cause"] == "no_api"]
    unknown_ns = causes.groupby(list(_GPU), sort=True)["idle_ns"].sum()
    open_of: list[tuple[int, Record]] = []
    for row in records(tables["devices"]):
        # What was launched before the capture began is cut off: no setting records its launch.
        cut_ns = row["before_capture_ns"]
        open_ns = int(unknown_ns.get((row["rank"], row["device_id"]), 0)) - cut_ns
        is_much = percent(open_ns, row["idle_ns"] - cut_ns) >= NO_API_PCT
        if is_much and percent(open_ns, row["window_ns"]) >= 1.0:
            open_of.append((open_ns, row))
    if not open_of:
        return []
    open_ns, row = max(open_of, key=lambda item: item[0])
    place: dict[str, Any] = {"rank": int(row["rank"]), "device_id": int(row["device_id"])}
    of = partial(claim, tables, **place)
    idle = of("idle_ns", "devices", "idle_ns", "cell")
    return [
        RULES["idle_without_launch"].finding(
            evidence=(
                of("share_pct", "rank_causes", "idle_ns", "sum", idle, cause="no_api"),
                of("open_ns", "rank_causes", "idle_ns", cause="no_api"),
                of("before_capture_ns", "devices", "before_capture_ns", "cell"),
            ),
            impact_ns=open_ns,
            **place,
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
    of = partial(claim, tables, rank=row["rank"])
    return [
        RULES["copies_not_traced"].finding(
            evidence=(
                *cells("devices", row, ("rank",), ("copies_seen_n", "copies_cut_n")),
                of("calls_n", "devices", "copy_calls_n-copies_cut_n", "cell"),
            ),
            ranks=tuple(int(rank) for rank in few["rank"]),
            rank=int(row["rank"]),
        )
    ]
