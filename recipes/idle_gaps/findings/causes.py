"""Findings on what the idle time is made of, and on what of it is not idle or not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from nsys_llm.analyses.device.gap_sums import BUCKET_EDGES_NS, BUCKETS
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables, severity_of
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from ..partials import MICRO_GAP_NS
from .cross_rank_idle import ends_of_pipeline, or_by_schedule
from .texts import (
    AVOIDABLE_PCT,
    COPIES_SEEN_PCT,
    COPY_CALLS,
    IDLE_PCT,
    LEAST_NS,
    NO_API_PCT,
    PROFILER_NS,
    RULES,
)

#: Buckets of gaps as short as the time between two launches, and of longer ones.
_SHORT: Final = BUCKETS[: 1 + BUCKET_EDGES_NS.index(MICRO_GAP_NS)]
_LONG: Final = BUCKETS[len(_SHORT) :]
#: The rule about hosts that launch nothing, as those of stages without input do.
_WAITS_FOR_INPUT: Final = "host_work"
#: Devices with so much of the most idle time of one are compared by their shares; ours.
_COMPARABLE: Final = 0.5


@dataclass(frozen=True)
class Kind:
    """One kind of idle time.

    Attributes:
        causes: Its causes.
        buckets: The lengths of gaps that belong to it.
        limits_pct: Shares of the window by severity.
    """

    causes: tuple[str, ...]
    buckets: tuple[str, ...]
    limits_pct: Mapping[str, float]


#: By the rule that tells of it.
KINDS: Final[Mapping[str, Kind]] = {
    "idle_host_sync": Kind(("host_sync",), BUCKETS, AVOIDABLE_PCT),
    "idle_sync_memop": Kind(("sync_memop",), BUCKETS, AVOIDABLE_PCT),
    "idle_alloc": Kind(("alloc",), BUCKETS, AVOIDABLE_PCT),
    "idle_module_load": Kind(("module_load",), BUCKETS, AVOIDABLE_PCT),
    "idle_back_pressure": Kind(("back_pressure",), BUCKETS, IDLE_PCT),
    "launch_bound": Kind(
        ("launch_api", "host_no_cuda", "launch_latency", "other_api"), _SHORT, IDLE_PCT
    ),
    "queued_gaps": Kind(("queued",), BUCKETS, IDLE_PCT),
    "host_work": Kind(("host_no_cuda",), _LONG, IDLE_PCT),
    "slow_launches": Kind(("launch_api", "launch_latency", "other_api"), _LONG, IDLE_PCT),
}


def cause_findings(tables: Tables) -> list[Finding]:
    """Return what the tables cause_sums, rank_causes, gaps, patterns and devices tell."""
    staged = bool(ends_of_pipeline(tables))
    kinds = (_finding(rule, kind, tables, staged=staged) for rule, kind in KINDS.items())
    found = [one for one in kinds if one is not None]
    found = [or_by_schedule(one, tables) if one.rule == _WAITS_FOR_INPUT else one for one in found]
    return [
        *found,
        *_profiler(tables),
        *_unknown_launches(tables),
        *_cut_graphs(tables),
        *_missing_copies(tables),
    ]


def _finding(rule: str, kind: Kind, tables: Tables, *, staged: bool) -> Finding | None:
    causes, devices = tables["rank_causes"], tables["devices"]
    mine = causes[causes["cause"].isin(kind.causes) & causes["bucket"].isin(kind.buckets)]
    total_ns = int(mine["idle_ns"].sum())
    if total_ns < LEAST_NS:
        return None
    by_device = mine.groupby(["rank", "device_id"], sort=True)["idle_ns"].sum()
    spans = devices.set_index(["rank", "device_id"])
    # A device that is used for a moment is idle for most of that, and no matter.
    most = by_device[by_device >= _COMPARABLE * by_device.max()]
    share = 100.0 * most / spans["window_ns"].reindex(most.index)
    rank, device = share.idxmax()
    severity = severity_of(float(share.max()), kind.limits_pct)
    if severity is None:
        return None
    # A stage of a pipeline launches nothing before its input is there.
    staged &= rule == _WAITS_FOR_INPUT
    if staged and severity in ("high", "medium"):
        severity = "low"
    window, longest = _longest(kind, tables, rank, device)
    whole_ns = int(devices["idle_ns"].sum())
    return RULES[rule].finding(
        case="stages" if staged else None,
        severity=severity,
        details=f"{format_ns(by_device[rank, device])}, {format_percent(share.max())} of the "
        f"window of rank {rank}; {format_ns(total_ns)} on "
        f"{counted(by_device[by_device > 0].index.get_level_values(0).nunique(), 'rank')}, "
        f"{format_percent(100 * total_ns / whole_ns)} of all idle time."
        f"{longest}{_pattern(kind, tables)}",
        rank=int(rank),
        device_id=int(device),
        window_ns=window,
        impact_ns=total_ns,
    )


def _longest(
    kind: Kind, tables: Tables, rank: Any, device: Any
) -> tuple[tuple[int, int] | None, str]:
    """Return where the longest such gap of a device is, and words about it."""
    gaps, devices = tables["gaps"], tables["devices"]
    mine = gaps[(gaps["rank"] == rank) & (gaps["device_id"] == device)]
    mine = mine[mine["cause"].isin(kind.causes)]
    mine = mine[(mine["duration_ns"] >= MICRO_GAP_NS) | (kind.buckets != _LONG)]
    if mine.empty or kind.buckets == _SHORT:
        own = devices[(devices["rank"] == rank) & (devices["device_id"] == device)].iloc[0]
        return (int(own["window_start_ns"]), int(own["window_end_ns"])), ""
    gap = mine.iloc[0]
    words = [f" The longest: {format_ns(gap['duration_ns'])}"]
    if pd.notna(gap["api"]):
        words.append(f", {format_ns(gap['api_ns'])} of it in {quoted(gap['api'])}")
    if pd.notna(gap["nvtx_range"]):
        words.append(f", in the range {quoted(gap['nvtx_range'])}")
    if pd.notna(gap["os_call"]):
        words.append(f"; {format_ns(gap['os_call_ns'])} in {quoted(gap['os_call'])}")
    if pd.notna(gap["on_core_ns"]):
        words.append(f"; the thread ran on a core for {format_ns(gap['on_core_ns'])} of it")
    if pd.notna(gap["after"]):
        words.append(f", before {quoted(gap['after'])}")
    return (int(gap["start_ns"]), int(gap["end_ns"])), "".join([*words, "."])


def _pattern(kind: Kind, tables: Tables) -> str:
    """Return words about the costliest repeated short gap of a kind."""
    patterns = tables["patterns"]
    mine = patterns[patterns["cause"].isin(kind.causes) & (patterns["gaps_n"] > 1)]
    if mine.empty or kind.buckets == _LONG:
        return ""
    row = mine.iloc[0]
    return (
        f" The costliest short gap that repeats: {quoted(row['before'])} to "
        f"{quoted(row['after'])}, {format_count(row['gaps_n'])} times, median "
        f"{format_ns(row['p50_ns'])}, together {format_ns(row['total_ns'])}."
    )


def _profiler(tables: Tables) -> list[Finding]:
    devices = tables["devices"]
    worst = devices[devices["known"] & (devices["overhead_ns"] >= PROFILER_NS)]
    if worst.empty:
        return []
    row = worst.loc[worst["overhead_ns"].idxmax()]
    gaps = tables["gaps"]
    mine = gaps[(gaps["rank"] == row["rank"]) & (gaps["device_id"] == row["device_id"])]
    mine = mine[mine["profiler_overhead_ns"] > 0].sort_values(
        ["profiler_overhead_ns", "start_ns"], ascending=[False, True]
    )
    window = (int(row["window_start_ns"]), int(row["window_end_ns"]))
    longest = ""
    if len(mine):
        gap = mine.iloc[0]
        window = int(gap["start_ns"]), int(gap["end_ns"])
        longest = (
            f" The longest of it: {format_ns(gap['profiler_overhead_ns'])} of a gap of "
            f"{format_ns(gap['duration_ns'])}."
        )
    total_ns = int(worst["overhead_ns"].sum())
    return [
        RULES["profiler_in_gaps"].finding(
            severity="note",
            details=f"{format_ns(row['overhead_ns'])} on rank {row['rank']}, "
            f"{format_ns(total_ns)} on {counted(worst['rank'].nunique(), 'rank')}; counted "
            f"neither as busy nor as idle.{longest}",
            rank=int(row["rank"]),
            device_id=int(row["device_id"]),
            window_ns=window,
            impact_ns=total_ns,
        )
    ]


def _unknown_launches(tables: Tables) -> list[Finding]:
    causes, devices = tables["rank_causes"], tables["devices"]
    own = causes[causes["cause"] == "no_api"].groupby("rank")["idle_ns"].sum()
    known = devices[devices["known"]].groupby("rank")[["idle_ns", "before_capture_ns"]].sum()
    # What was launched before the capture began is cut off: no setting records its launch.
    known["open_ns"] = own.reindex(known.index).fillna(0) - known["before_capture_ns"]
    cut_ns, open_ns = (int(known[name].sum()) for name in ("before_capture_ns", "open_ns"))
    share = 100.0 * open_ns / max(int(known["idle_ns"].sum()) - cut_ns, 1)
    if open_ns < LEAST_NS or share < NO_API_PCT:
        return []
    rank = known["open_ns"].idxmax()
    cut = f" Without {format_ns(cut_ns)} that the begin of the capture cut." if cut_ns else ""
    return [
        RULES["idle_without_launch"].finding(
            severity="note",
            details=f"{format_ns(open_ns)} before operations whose API call is not "
            f"recorded; rank {rank} has most of it ({format_ns(known['open_ns'][rank])}).{cut}",
            fields={"share": format_percent(share)},
            rank=int(rank),
            impact_ns=open_ns,
        )
    ]


def _cut_graphs(tables: Tables) -> list[Finding]:
    """Say why idle time is not known where only the end of the capture cut graphs."""
    columns = ["rank", "file", "opaque_launches_n", "graphs_cut_n"]
    ranks = tables["devices"][columns].drop_duplicates()
    cut = ranks[ranks["graphs_cut_n"] > 0]
    cut = cut[cut["graphs_cut_n"] == cut["opaque_launches_n"]]  # else opaque_graphs says it
    if cut.empty:
        return []
    row = cut.loc[cut["graphs_cut_n"].idxmax()]
    return [
        RULES["graphs_cut_at_end"].finding(
            severity="medium",
            details=f"{counted(row['graphs_cut_n'], 'launch', 'launches')} of CUDA graphs on rank "
            f"{row['rank']} had left nothing when the capture ended, and the window reaches beyond "
            "the last recorded operation, where they may run.",
            fields={"ranks": counted(len(cut), "rank")},
            rank=int(row["rank"]),
        )
    ]


def _missing_copies(tables: Tables) -> list[Finding]:
    columns = ["rank", "file", "copy_calls_n", "copies_seen_n", "copies_cut_n"]
    ranks = tables["devices"][columns].drop_duplicates()
    # What the end of the capture cut is not missing, and no flag would record it.
    ranks = ranks.assign(calls_n=ranks["copy_calls_n"] - ranks["copies_cut_n"])
    few = ranks[ranks["calls_n"] >= COPY_CALLS]
    few = few[100.0 * few["copies_seen_n"] < COPIES_SEEN_PCT * few["calls_n"]]
    if few.empty:
        return []
    row = few.loc[(few["calls_n"] - few["copies_seen_n"]).idxmax()]
    cut_n, left = int(row["copies_cut_n"]), format_count(row["copies_seen_n"])
    cut = f" ({format_count(cut_n)} more were queued when the capture ended)" if cut_n else ""
    return [
        RULES["copies_not_traced"].finding(
            severity="medium",
            details=f"Of {format_count(row['calls_n'])} calls that copy or fill on rank "
            f"{row['rank']}{cut}, {left} left an operation on the GPU; so "
            f"it is on {format_count(len(few))} of {counted(len(ranks), 'rank')}.",
            rank=int(row["rank"]),
        )
    ]
