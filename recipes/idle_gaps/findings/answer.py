"""What idle_gaps tells its reader: the answer in two sentences, and findings.

Made from finished tables alone; devices whose idle time is not known have no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from ..partials import MICRO_GAP_NS
from .advice import KINDS, LONG, SHORT, Kind
from .ranks import ends_of_pipeline, or_by_schedule, rank_findings
from .severity import severity_of

_Tables = Mapping[str, pd.DataFrame]

#: Idle time of all ranks together that is worth a word; as much as nsys-llm-explainer 0.1.0 asks
#: of synchronisation.
_LEAST_NS: Final = 1_000_000
#: The profiler's own work in the gaps of one device, from which it is told: a long gap of its own.
_PROFILER_NS: Final = 100_000
#: Share of the idle time whose launches are not recorded, from which causes say too little. The
#: complement of the coverage below which nsys-llm-explainer warns.
_NO_API_PCT: Final = 30.0
#: Copies are missing if so many calls, and most of them, left nothing on the GPU.
_COPY_CALLS: Final = 10
_COPIES_SEEN_PCT: Final = 50.0
#: The rule about hosts that launch nothing, as those of stages without input do.
_WAITS_FOR_INPUT: Final = "host_work"
_TOP_CAUSES: Final = 3
#: Devices with so much of the most idle time of one are compared by their shares; ours.
_COMPARABLE: Final = 0.5


def answer(tables: _Tables) -> str:
    """Return why the GPUs were idle, in two sentences."""
    devices, sums = tables["devices"], tables["cause_sums"]
    known = devices[devices["known"] & (devices["window_ns"] > 0)]
    if known.empty:
        if (unknown := devices[~devices["known"]]).size:
            cut = (unknown["graphs_cut_n"] == unknown["opaque_launches_n"]).all()
            why = (
                "the window reaches beyond the last operation, and CUDA graphs were running when "
                "the capture ended. Leave out `--whole-capture`, or end the window there."
                if cut
                else "CUDA graphs were launched whose work is not in the reports. Record them with "
                "`--cuda-graph-trace=node`."
            )
            return f"Idle time is not known: {why}"
        return (
            "Nothing ran on a GPU in what was looked at. `coverage` says what the reports hold, "
            "and what a filter left of it."
        )
    idle_ns, window_ns = int(known["idle_ns"].sum()), int(known["window_ns"].sum())
    ranks_n = known["rank"].nunique()
    where = counted(ranks_n, "rank")
    if len(known) < len(devices):
        where += f"; not known on {format_count(len(devices) - len(known))} devices more"
    first = (
        f"The GPUs ran nothing for {format_percent(100 * idle_ns / window_ns)} of their windows "
        f"({format_ns(idle_ns)} of {format_ns(window_ns)}, {where})"
    )
    if sums.empty or not idle_ns:
        return f"{first}. There is no idle time to explain."
    top = sums[sums["idle_ns"] > 0].head(_TOP_CAUSES)
    shares = [
        f"{quoted(row['cause'])} {format_percent(row['idle_pct'])} ({row['meaning']})"
        for row in top.to_dict("records")
    ]
    longest_ns = int(known["gap_max_ns"].max())
    return (
        f"{first}, in {format_count(known['gaps_n'].sum())} gaps of up to {format_ns(longest_ns)}. "
        f"Most of it: {'; '.join(shares)}."
    )


def findings(tables: _Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    kinds = (_kind(rule, kind, tables) for rule, kind in KINDS.items())
    found = [one for one in kinds if one is not None]
    if ends_of_pipeline(tables):
        found = [_of_stages(one) if one.rule == _WAITS_FOR_INPUT else one for one in found]
    found = [or_by_schedule(one, tables) if one.rule == _WAITS_FOR_INPUT else one for one in found]
    return [
        *found,
        *_profiler(tables),
        *_unknown_launches(tables),
        *_cut_graphs(tables),
        *_missing_copies(tables),
        *rank_findings(tables),
    ]


def _of_stages(found: Finding) -> Finding:
    """Say first that a stage of a pipeline launches nothing before its input is there."""
    return replace(
        found,
        severity="low" if found.severity in ("high", "medium") else found.severity,
        title="Stages of a pipeline are idle while their hosts launch nothing",
        recommendation="The ranks send and receive as pipeline stages do: without its input, a "
        "stage has nothing to run. See the bubble in tail_stats first (more microbatches, "
        f"interleaved stages). What is beyond that: {found.recommendation}",
    )


def _kind(rule: str, kind: Kind, tables: _Tables) -> Finding | None:
    causes, devices = tables["rank_causes"], tables["devices"]
    mine = causes[causes["cause"].isin(kind.causes) & causes["bucket"].isin(kind.buckets)]
    total_ns = int(mine["idle_ns"].sum())
    if total_ns < _LEAST_NS:
        return None
    by_device = mine.groupby(["rank", "device_id"], sort=True)["idle_ns"].sum()
    spans = devices.set_index(["rank", "device_id"])
    # A device that is used for a moment is idle for most of that, and no matter.
    most = by_device[by_device >= _COMPARABLE * by_device.max()]
    share = 100.0 * most / spans["window_ns"].reindex(most.index)
    rank, device = share.idxmax()
    severity = severity_of(float(share.max()), avoidable=kind.avoidable)
    if severity is None:
        return None
    window, longest = _longest(kind, tables, rank, device)
    whole_ns = int(devices["idle_ns"].sum())
    return Finding(
        rule=rule,
        severity=severity,
        scope="device",
        rank=int(rank),
        device_id=int(device),
        window_ns=window,
        title=kind.title,
        evidence=f"{format_ns(by_device[rank, device])}, {format_percent(share.max())} of the "
        f"window of rank {rank}; {format_ns(total_ns)} on "
        f"{counted(by_device[by_device > 0].index.get_level_values(0).nunique(), 'rank')}, "
        f"{format_percent(100 * total_ns / whole_ns)} of all idle time."
        f"{longest}{_pattern(kind, tables)}",
        tables=("rank_causes", "causes", "gaps", "patterns", "devices"),
        recommendation=kind.recommendation,
        capture=kind.capture,
        impact_ns=total_ns,
    )


def _longest(
    kind: Kind, tables: _Tables, rank: Any, device: Any
) -> tuple[tuple[int, int] | None, str]:
    """Return where the longest such gap of a device is, and words about it."""
    gaps, devices = tables["gaps"], tables["devices"]
    mine = gaps[(gaps["rank"] == rank) & (gaps["device_id"] == device)]
    mine = mine[mine["cause"].isin(kind.causes)]
    mine = mine[(mine["duration_ns"] >= MICRO_GAP_NS) | (kind.buckets != LONG)]
    if mine.empty or kind.buckets == SHORT:
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


def _pattern(kind: Kind, tables: _Tables) -> str:
    """Return words about the costliest repeated short gap of a kind."""
    patterns = tables["patterns"]
    mine = patterns[patterns["cause"].isin(kind.causes) & (patterns["gaps_n"] > 1)]
    if mine.empty or kind.buckets == LONG:
        return ""
    row = mine.iloc[0]
    return (
        f" The costliest short gap that repeats: {quoted(row['before'])} to "
        f"{quoted(row['after'])}, {format_count(row['gaps_n'])} times, median "
        f"{format_ns(row['p50_ns'])}, together {format_ns(row['total_ns'])}."
    )


def _profiler(tables: _Tables) -> list[Finding]:
    devices = tables["devices"]
    worst = devices[devices["known"] & (devices["overhead_ns"] >= _PROFILER_NS)]
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
        Finding(
            rule="profiler_in_gaps",
            severity="note",
            scope="device",
            rank=int(row["rank"]),
            device_id=int(row["device_id"]),
            window_ns=window,
            title="Some gaps are the profiler's own work",
            evidence=f"{format_ns(row['overhead_ns'])} on rank {row['rank']}, "
            f"{format_ns(total_ns)} on {counted(worst['rank'].nunique(), 'rank')}; counted "
            f"neither as busy nor as idle.{longest}",
            tables=("devices", "gaps"),
            recommendation="Leave these gaps out of any comparison. A shorter capture, or a larger "
            "buffer, moves the flushes out of the window.",
            capture="--cuda-flush-interval=0 --capture-range=cudaProfilerApi",
            impact_ns=total_ns,
        )
    ]


def _unknown_launches(tables: _Tables) -> list[Finding]:
    causes, devices = tables["rank_causes"], tables["devices"]
    own = causes[causes["cause"] == "no_api"].groupby("rank")["idle_ns"].sum()
    known = devices[devices["known"]].groupby("rank")[["idle_ns", "before_capture_ns"]].sum()
    # What was launched before the capture began is cut off: no setting records its launch.
    known["open_ns"] = own.reindex(known.index).fillna(0) - known["before_capture_ns"]
    cut_ns, open_ns = (int(known[name].sum()) for name in ("before_capture_ns", "open_ns"))
    share = 100.0 * open_ns / max(int(known["idle_ns"].sum()) - cut_ns, 1)
    if open_ns < _LEAST_NS or share < _NO_API_PCT:
        return []
    rank = known["open_ns"].idxmax()
    cut = f" Without {format_ns(cut_ns)} that the begin of the capture cut." if cut_ns else ""
    return [
        Finding(
            rule="idle_without_launch",
            severity="note",
            scope="rank",
            rank=int(rank),
            title=f"Nothing is known of the cause of {format_percent(share)} of the idle time",
            evidence=f"{format_ns(open_ns)} before operations whose API call is not "
            f"recorded; rank {rank} has most of it ({format_ns(known['open_ns'][rank])}).{cut}",
            tables=("cause_sums", "devices", "coverage"),
            recommendation="Do not read the other causes as shares of the whole.",
            capture="--trace=cuda,nvtx",
            impact_ns=open_ns,
        )
    ]


def _cut_graphs(tables: _Tables) -> list[Finding]:
    """Say why idle time is not known where only the end of the capture cut graphs."""
    columns = ["rank", "file", "opaque_launches_n", "graphs_cut_n"]
    ranks = tables["devices"][columns].drop_duplicates()
    cut = ranks[ranks["graphs_cut_n"] > 0]
    cut = cut[cut["graphs_cut_n"] == cut["opaque_launches_n"]]  # else opaque_graphs says it
    if cut.empty:
        return []
    row = cut.loc[cut["graphs_cut_n"].idxmax()]
    return [
        Finding(
            rule="graphs_cut_at_end",
            severity="medium",
            scope="rank",
            rank=int(row["rank"]),
            title=f"Idle time is not known on {counted(len(cut), 'rank')}: graphs were running "
            "when the capture ended",
            evidence=f"{counted(row['graphs_cut_n'], 'launch', 'launches')} of CUDA graphs on rank "
            f"{row['rank']} had left nothing when the capture ended, and the window reaches beyond "
            "the last recorded operation, where they may run.",
            tables=("devices", "coverage"),
            recommendation="Leave out --whole-capture, or end --filter-time with the last "
            "operation: up to there the idle time is known.",
        )
    ]


def _missing_copies(tables: _Tables) -> list[Finding]:
    columns = ["rank", "file", "copy_calls_n", "copies_seen_n", "copies_cut_n"]
    ranks = tables["devices"][columns].drop_duplicates()
    # What the end of the capture cut is not missing, and no flag would record it.
    ranks = ranks.assign(calls_n=ranks["copy_calls_n"] - ranks["copies_cut_n"])
    few = ranks[ranks["calls_n"] >= _COPY_CALLS]
    few = few[100.0 * few["copies_seen_n"] < _COPIES_SEEN_PCT * few["calls_n"]]
    if few.empty:
        return []
    row = few.loc[(few["calls_n"] - few["copies_seen_n"]).idxmax()]
    cut_n, left = int(row["copies_cut_n"]), format_count(row["copies_seen_n"])
    cut = f" ({format_count(cut_n)} more were queued when the capture ended)" if cut_n else ""
    return [
        Finding(
            rule="copies_not_traced",
            severity="medium",
            scope="rank",
            rank=int(row["rank"]),
            title="Most copies are not in the report: idle time is an upper bound",
            evidence=f"Of {format_count(row['calls_n'])} calls that copy or fill on rank "
            f"{row['rank']}{cut}, {left} left an operation on the GPU; so "
            f"it is on {format_count(len(few))} of {counted(len(ranks), 'rank')}.",
            tables=("devices", "coverage"),
            recommendation="Do not read gaps as idle: a GPU may have copied in them.",
            capture="--trace=cuda",
        )
    ]
