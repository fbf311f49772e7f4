"""What the collectives tell: who makes whom wait, and what cannot be told. From tables alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pandas as pd

from nsys_llm.analyses.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, grouped, records, severity_of
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.view.text import (
    counted,
    format_count,
    format_instant,
    format_ns,
    format_percent,
    quoted,
)

from ..tables.collective_classes import (
    INCONCLUSIVE,
    PERSISTENT,
    SKEW,
    TRANSFER,
    TRANSIENT,
    telling_late_pct,
)
from .late_causes import late_cause
from .pipelines import find_pipelines, pipeline_findings, stage_pairs
from .profiler import WORTH_A_WORD_PCT, of_the_profiler, profiler_findings, program_ns
from .texts import RULES, TRANSFER_PCT, UNMATCHED_PCT, WAIT_PCT

#: Share of sends and receives without a sure peer from which the answer says so, in percent; ours.
_OPEN_PCT: Final = 2.0
#: Rules by the pattern of a rank.
_STRAGGLERS: Final = {
    PERSISTENT: "persistent_straggler",
    TRANSIENT: "transient_straggler",
}
#: Share of the waiting that the clocks may be wrong by, in percent, from which the answer says so;
#: ours.
_DOUBT_PCT: Final = 20
_THIRDS: Final = ("first", "second", "last")


def waiting_words(tables: Tables) -> str:
    """Return clauses: what in collectives is waiting, for whom, and what is not known of it."""
    parts = [_share_words(tables), *_bubble_words(tables), *_open_words(tables)]
    return "; ".join(part for part in parts if part)


def _bubble_words(tables: Tables) -> list[str]:
    return [
        f"the bubble of the pipeline of ranks {one.ranks} is {format_percent(one.bubble_pct)} of "
        "its window"
        for one in find_pipelines(tables)[:1]
    ]


def _open_words(tables: Tables) -> list[str]:
    """Return how many sends and receives have no peer that is sure, where that is many."""
    coverage, sequences = tables["collective_coverage"], tables["communicators"]
    mine = coverage[coverage["operation"] == SEND_RECV]
    open_n, all_n = int(mine["unmatched_n"].sum()), int(mine["kernels_n"].sum())
    several = mine[["rank", "device_id"]].drop_duplicates().shape[0] > 2
    undecided = ((sequences["operation"] == SEND_RECV) & (sequences["collectives_n"] == 0)).any()
    if not several or not (undecided or 100 * open_n >= _OPEN_PCT * max(all_n, 1)):
        return []
    return [
        f"{format_count(open_n)} of {format_count(all_n)} sends and receives could not be matched "
        "with a peer, and their waiting is not known"
    ]


def _share_words(tables: Tables) -> str:
    every = tables["communicators"]
    every = every[~every["communicator"].isin(stage_pairs(tables))]
    found, ranks = every[_sure(every)], _surely_matched(tables["stragglers"], every)
    total_ns, wait_ns = int(found["total_ns"].sum()), int(found["wait_ns"].sum())
    unsure_ns = int(every["total_ns"].sum()) - total_ns
    unsure = (
        f"how much of {format_ns(unsure_ns)} in collectives is waiting is inconclusive, because "
        "which of them belong together has low confidence"
    )
    if not total_ns or not wait_ns:
        return unsure if unsure_ns else ""
    rest = f"; {unsure}" if 100 * unsure_ns >= UNMATCHED_PCT * (total_ns + unsure_ns) else ""
    doubt_ns = _doubt_ns(found)
    if doubt_ns >= wait_ns:
        return (
            f"at most {format_ns(min(wait_ns + doubt_ns, total_ns))} of {format_ns(total_ns)} in "
            f"collectives is waiting: clocks agree to {_residuals(found)}, and measured waits are "
            f"no longer{rest}"
        )
    share = (
        f"{format_ns(wait_ns)} of {format_ns(total_ns)} in collectives "
        f"({format_percent(100 * wait_ns / total_ns)}) is waiting for the last rank"
    )
    if 100 * doubt_ns >= _DOUBT_PCT * wait_ns:
        share += f" (± {format_ns(doubt_ns)}: clocks agree to {_residuals(found)})"
    profiler_ns = int(ranks["profiler_ns"].fillna(0).sum())
    if 100 * profiler_ns >= WORTH_A_WORD_PCT * wait_ns:
        share += f" ({format_ns(profiler_ns)} of it by the profiler's own work)"
    late = " and ".join(
        f"{format_ns(row['caused_wait_ns'])} of it for rank {row['rank']} ({_when(row)})"
        for row in _telling(records(ranks))
    )
    return f"{share}, {late}{rest}" if late else share + rest


def _doubt_ns(sequences: pd.DataFrame) -> int:
    """Return by how much waiting may be wrong, if clocks are wrong the same way each time."""
    pairs = sequences["overlap_n"] * (sequences["ranks_n"] - 1)
    return int((pairs * sequences["residual_ns"]).sum())


def _residuals(sequences: pd.DataFrame) -> str:
    return format_ns(int(sequences["residual_ns"].max()))


def _telling(ranks: Sequence[Record]) -> list[Record]:
    """Return the worst rank that is late throughout, and the worst that is for a while."""
    found: list[Record] = []
    for pattern in (PERSISTENT, TRANSIENT):
        named = {row["rank"] for row in found}
        own = [row for row in ranks if row["pattern"] == pattern and row["rank"] not in named]
        found += own[:1]
    return found


def _sure(sequences: pd.DataFrame) -> pd.Series[bool]:
    return sequences["confidence"] != LOW_CONFIDENCE


def _surely_matched(ranks: pd.DataFrame, sequences: pd.DataFrame) -> pd.DataFrame:
    """Leave out the ranks of communicators most of whose time was matched with low confidence."""
    sure = _sure(sequences)
    by_name = sequences["total_ns"].where(sure, 0).groupby(sequences["communicator"]).sum()
    total_ns = sequences["total_ns"].groupby(sequences["communicator"]).sum()
    told = 2 * by_name >= total_ns
    return ranks[ranks["communicator"].isin(told[told].index)]


def collective_findings(tables: Tables) -> list[Finding]:
    """Return all findings about collectives, in no order."""
    every = tables["communicators"]
    every = every[~every["communicator"].isin(stage_pairs(tables))]
    ranks = tables["stragglers"]
    equals = _surely_matched(ranks, every)
    stragglers = _stragglers(tables, equals)
    return [
        *pipeline_findings(tables),
        *stragglers,
        *profiler_findings(equals),
        *_no_single_one(equals, every, {one.rank for one in stragglers}),
        # Low confidence may come from the clocks: no rank is named, and why is said.
        *_unclear_clocks(ranks[ranks["communicator"].isin(every["communicator"])]),
        *_transfers(tables["communicators"]),
        *_unmatched(tables["collective_coverage"]),
    ]


def _stragglers(tables: Tables, ranks: pd.DataFrame) -> list[Finding]:
    """Name each rank that is late throughout or for a while, where that costs time."""
    found = []
    for row in records(ranks[ranks["pattern"].isin([PERSISTENT, TRANSIENT])]):
        cost_pct = _cost_pct(row)
        if cost_pct < WAIT_PCT["low"]:
            continue
        cause, seen, look = late_cause(tables, row)
        found.append(
            RULES[_STRAGGLERS[row["pattern"]]].finding(
                severity=severity_of(cost_pct, WAIT_PCT) or "low",
                details=f"{seen}The others waited {format_ns(row['caused_wait_ns'])} for it, "
                f"{format_percent(row['caused_pct'])} of all waiting in these collectives and "
                f"{format_percent(cost_pct)} of the others' time. It came last in "
                f"{format_count(row['late_n'])} of {format_count(row['collectives_n'])}, at worst "
                f"by {format_ns(row['worst_late_by_ns'])}; by thirds of the run in "
                f"{_thirds(row, 'late')} of the collectives, with {_thirds(row, 'caused')} of the "
                f"waiting.{_clocks(row)}{of_the_profiler(row)}",
                fields={
                    "rank": row["rank"],
                    "communicator": row["communicator"],
                    "when": _when(row),
                    "cause": cause,
                    "look": look,
                },
                rank=int(row["rank"]),
                device_id=int(row["device_id"]),
                window_ns=_window(row),
                impact_ns=program_ns(row),
            )
        )
    return found


def _clocks(row: Record) -> str:
    """Say how well clocks agree; nothing where there is one clock."""
    residual_ns = int(row["residual_ns"])
    return f" Clocks agree to {format_ns(residual_ns)}." if residual_ns else ""


def _when(row: Record) -> str:
    if row["pattern"] == PERSISTENT:
        return "throughout"
    telling = telling_late_pct(int(row["ranks_n"]))
    shares = [row[f"caused_{third}_third_pct"] or 0.0 for third in _THIRDS]
    # Late too seldom to be late throughout, but the cause of most waiting whenever one looks.
    if min(shares) >= telling:
        return "again and again"
    if row["burst_start_ns"] is None:
        return "for a part of the run"
    burst = (format_instant(row["burst_start_ns"]), format_instant(row["burst_end_ns"]))
    return f"for a part of the run, from {burst[0]} to {burst[1]}"


def _window(row: Record) -> tuple[int, int]:
    """Return where to look: at the burst of a transient straggler, else where it was latest."""
    if row["burst_start_ns"] is not None and _when(row).startswith("for a part"):
        return int(row["burst_start_ns"]), int(row["burst_end_ns"])
    return int(row["window_start_ns"]), int(row["window_end_ns"])


def _thirds(row: Record, what: str) -> str:
    return ", ".join(format_percent(row[f"{what}_{third}_third_pct"]) for third in _THIRDS)


def _no_single_one(
    ranks: pd.DataFrame, sequences: pd.DataFrame, late: Collection[int | None]
) -> list[Finding]:
    """Say so where a communicator mostly waits and no rank stands out, here or in another one.

    Args:
        ranks: Rows of stragglers.
        sequences: Rows of communicators.
        late: Ranks that are named as late; who meets them waits for them everywhere.
    """
    found = []
    for name, own in ranks.groupby("communicator", sort=True):
        mine = sequences[sequences["communicator"] == name]
        wait_pct = 100.0 * mine["wait_ns"].sum() / max(int(mine["total_ns"].sum()), 1)
        worst = own.iloc[0]
        span_ns = int(worst["span_ns"]) * len(own)
        program_ns = int(worst["wait_ns"]) - int(own["profiler_ns"].fillna(0).sum())
        cost_pct = 100.0 * program_ns / max(span_ns, 1)
        told = own["pattern"].isin([PERSISTENT, TRANSIENT, INCONCLUSIVE]).any()
        told |= own["rank"].isin(list(late)).any()
        if told or SKEW not in set(mine["class"]) or cost_pct < WAIT_PCT["medium"]:
            continue
        found.append(
            RULES["shared_skew"].finding(
                severity=severity_of(cost_pct, WAIT_PCT) or "low",
                details=f"{format_percent(wait_pct)} of the time in their collectives is waiting "
                f"({format_ns(worst['wait_ns'])}), and no rank stands out: rank {worst['rank']} "
                f"caused most of it with {format_percent(worst['caused_pct'])}.",
                fields={"communicator": name},
                impact_ns=int(worst["wait_ns"]),
            )
        )
    return found


def _unclear_clocks(ranks: pd.DataFrame) -> list[Finding]:
    """Say so where the clocks are less exact than the lateness is large."""
    unclear = ranks[(ranks["unclear_n"] > ranks["late_n"]) & (ranks["residual_ns"] > 0)]
    found = []
    for name, own in unclear.groupby("communicator", sort=True):
        row = own.iloc[0]
        if not int(row["wait_ns"]):
            continue
        found.append(
            RULES["clocks_too_uncertain"].finding(
                severity="note",
                details=f"Their clocks agree to {format_ns(row['residual_ns'])}, and on "
                f"{len(own)} of {int(row['ranks_n'])} ranks most latenesses are below that. The "
                f"waiting is {format_ns(row['wait_ns'])}.",
                fields={"communicator": name},
                impact_ns=int(row["wait_ns"]),
            )
        )
    return found


def _transfers(sequences: pd.DataFrame) -> list[Finding]:
    """Say where collectives take long because of what they move, once for each kernel."""
    moving = sequences[_sure(sequences) & (sequences["class"] == TRANSFER)]
    share_pct = 100.0 * moving["transfer_ns"] / moving["span_ns"].clip(lower=1)
    moving = moving.assign(share_pct=share_pct)[share_pct >= TRANSFER_PCT]
    by_kernel = grouped(records(moving), "kernel", "operation")
    return [_transfer(rows) for rows in by_kernel.values()]


def _transfer(rows: Sequence[Record]) -> Finding:
    most = max(rows, key=lambda row: (row["transfer_rank_ns"], -row["sequence_id"]))
    others_n = len(rows) - 1
    where = f"ranks {most['communicator']}"
    if others_n:
        where += f" and {counted(others_n, 'more communicator')}"
    others = " in the one with most of it" if others_n else ""
    return RULES["transfer_bound_collectives"].finding(
        severity="low",
        details=f"{format_count(most['collectives_n'])} collectives{others} move data for "
        f"{format_ns(most['transfer_ns'])}, {format_percent(most['share_pct'])} of the time from "
        f"the first to the last; only {format_percent(most['wait_pct'])} of the time in "
        "them is waiting.",
        fields={"operation": most["operation"], "where": where},
        name=str(most["kernel"]),
        impact_ns=sum(int(row["transfer_rank_ns"]) for row in rows),
    )


def _unmatched(coverage: pd.DataFrame) -> list[Finding]:
    ranks_n = coverage[["rank", "device_id"]].drop_duplicates().shape[0]
    kernels_n = int(coverage["kernels_n"].sum())
    lost_n = int((coverage["unmatched_n"] + coverage["over_limit_n"]).sum())
    if ranks_n < 2 or 100 * lost_n < UNMATCHED_PCT * max(kernels_n, 1):
        return []
    worst = coverage.sort_values("unmatched_n", ascending=False, kind="stable").iloc[0]
    return [
        RULES["unmatched_collectives"].finding(
            severity="low",
            details=f"{format_count(lost_n)} of {format_count(kernels_n)}; most are "
            f"{worst['operation']} on {quoted(worst['file'])}. Waits and late ranks are told "
            "without them.",
            fields={"share": format_percent(100 * lost_n / kernels_n)},
        )
    ]


def _cost_pct(row: Record) -> float:
    """Return the waiting that a rank caused, the profiler's left out, in the others' time."""
    others_ns = int(row["span_ns"]) * (int(row["ranks_n"]) - 1)
    return 100.0 * program_ns(row) / max(others_ns, 1)
