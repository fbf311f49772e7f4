"""Findings on kernels: tails within a configuration, and first launches.

Reads finished tables only. Communication is left out: it is long because it waits for other ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.numeric.tails import OUTLIER_RATIO
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, records, severity_of
from nsys_llm.taxonomy.names import normalise_range
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted, shortened

from .texts import FIRST_SHARE, KERNEL_COST_PCT, MOST, RULES

#: Kernels that one finding names.
_NAMES: Final = 3
#: Outliers of one rank over those of the mean rank that make it worth naming; and by how many
#: standard deviations of a number that chance alone would give (its root). Ours.
UNEVEN_RATIO: Final = 1.5
_UNEVEN_SIGMAS: Final = 3.0
_NS_PER_S: Final = 1e9


def tail_findings(tables: Tables) -> list[Finding]:
    """Return the findings on tails, outliers, rank_tails and tail_ranks."""
    tails = [row for row in records(tables["tails"]) if not row["communication"]]
    return [
        *_costly_tails(tables, tails),
        *_first_launches(tables),
        *_hidden_tails(tails),
    ]


def _lost_time(tables: Tables, lost_ns: int) -> str:
    """Return a time over all ranks as that of a rank, by second and, where known, by step."""
    ranks = tables["tail_ranks"]
    window_ns = int(ranks["window_ns"].sum())
    words = []
    if window_ns:
        words.append(f"{format_ns(lost_ns * _NS_PER_S / window_ns)} a second on each GPU")
    if len(ranks) and ranks["steps_n"].notna().all():
        # A rank with several devices has its steps in the row of each.
        steps_n = int(ranks.drop_duplicates("rank")["steps_n"].sum())
        words.append(f"{format_ns(lost_ns / steps_n)} a step")
    return f" ({', '.join(words)})" if words else ""


def _costly_tails(tables: Tables, tails: Sequence[Record]) -> list[Finding]:
    """Return configurations whose outliers cost most, apart from first launches."""
    whole_ns = int(tables["tails"]["total_ns"].sum())
    found = []
    for row in tails:
        lost_ns = row["outlier_excess_ns"]
        severity = severity_of(100.0 * lost_ns / whole_ns, KERNEL_COST_PCT) if whole_ns else None
        first = row["first_excess_ns"] >= FIRST_SHARE * lost_ns
        if severity is not None and not first and not row["second_heap"]:
            found.append((row, severity, lost_ns))
    worst = sorted(found, key=lambda one: -one[2])[:MOST]
    return [_costly_tail(tables, *one) for one in worst]


def _costly_tail(tables: Tables, row: Record, severity: str, lost_ns: int) -> Finding:
    own = of_configuration(tables["rank_tails"], row)
    by_rank = own.groupby("rank", sort=True)["outliers_n"].sum()
    listed = records(of_configuration(tables["outliers"], row))
    longest = records(own.sort_values("max_ns", ascending=False, kind="stable").head(1))[0]
    share = format_percent(100.0 * row["outliers_n"] / row["launches_n"])
    worst = outlying_rank(by_rank)
    ranks = "" if worst is None else f" Rank {worst} has {format_count(by_rank[worst])} of them."
    unmarked = bool(listed) and all(one["range"] is None for one in listed)
    rule = RULES["systematic_tail" if row["systematic"] else "rare_outliers"]
    return rule.finding(
        severity=severity,
        details=f"In configuration {row['config']}, {format_count(row['outliers_n'])} of "
        f"{counted(row['launches_n'], 'launch', 'launches')} ({share}) take more than twice the "
        f"median of {format_ns(row['p50_ns'])}: p99 {format_ns(row['p99_ns'])}, longest "
        f"{format_ns(row['max_ns'])}. They cost {format_ns(lost_ns)} beyond it"
        f"{_lost_time(tables, lost_ns)}.{ranks}{_surroundings(listed)}",
        fields={"kernel": quoted(shortened(row["name"])), "times": f"{row['max_p50']:.1f}"},
        case=_case(listed),
        rank=longest["rank"],
        device_id=longest["device_id"],
        name=row["name"],
        window_ns=(longest["longest_start_ns"], longest["longest_start_ns"] + longest["max_ns"]),
        record=rule.record if unmarked else None,
        impact_ns=lost_ns,
    )


def outlying_rank(counts: pd.Series) -> int | None:
    """Return the rank with far more than its share of some things, if there is one.

    Args:
        counts: How many each rank has; the index holds ranks.
    """
    most, mean = counts.max(), counts.mean()
    if len(counts) < 2 or not most:
        return None
    chance = max(UNEVEN_RATIO * mean, mean + _UNEVEN_SIGMAS * mean**0.5)
    # All of several on one rank are told of, few as they may be.
    if most <= chance and not 1 < most == counts.sum():
        return None
    ranks: list[int] = counts.index.tolist()
    return ranks[int(counts.to_numpy().argmax())]


def _surroundings(listed: Sequence[Record]) -> str:
    """Say what those launches that are listed have in common; nothing where there are none."""
    if not listed:
        return ""
    causes = Counter(row["likely_cause"] for row in listed)
    cause, cause_n = causes.most_common(1)[0]
    words = f" Of the {format_count(len(listed))} listed, {format_count(cause_n)}: {cause}."
    ranges = common_ranges(listed)
    if ranges:
        name, range_n = ranges.most_common(1)[0]
        words += f" NVTX range of {format_count(range_n)}: {quoted(shortened(name))}."
    return words


def common_ranges(listed: Sequence[Record]) -> Counter[str]:
    """Return how many launches each NVTX range has, by name without what PyTorch counts up."""
    return Counter(normalise_range(row["range"]) for row in listed if row["range"] is not None)


def _case(listed: Sequence[Record]) -> str | None:
    """Return the case of the advice: what most of the listed launches point at."""
    cause = Counter(one["likely_cause"] for one in listed).most_common(1)[0][0] if listed else ""
    return "beside" if cause.startswith("shared the device") else None


def _first_launches(tables: Tables) -> list[Finding]:
    """Return what slow first launches cost on the GPU, of configurations that are else even.

    Each is measured by the later launches of its own rank: the median over all ranks holds their
    first launches too, and all launches of a rank whose GPU is slow are beyond it.
    """
    whole_ns = int(tables["tails"]["total_ns"].sum())
    rows = tables["rank_tails"]
    first_ns, usual_ns = (rows[name].astype("float64") for name in ("first_ns", "later_p50_ns"))
    slow_first = (first_ns > OUTLIER_RATIO * usual_ns).fillna(False)
    slow = records(rows[~rows["communication"] & ~rows["systematic"] & slow_first])
    lost_ns = round(sum(row["first_ns"] - row["later_p50_ns"] for row in slow))
    severity = severity_of(100.0 * lost_ns / whole_ns, KERNEL_COST_PCT) if whole_ns else None
    if severity is None or not slow:
        return []
    worst = max(slow, key=lambda row: row["first_ns"] - row["later_p50_ns"])
    names_n = len({(row["name"], row["config"]) for row in slow})
    return [
        RULES["slow_first_launches"].finding(
            severity="low" if severity == "low" else "medium",
            details=f"{counted(len(slow), 'first launch', 'first launches')} on all ranks take "
            f"{format_ns(lost_ns)} beyond the medians of later launches. The most is "
            f"{quoted(shortened(worst['name']))} in configuration {worst['config']} on rank "
            f"{worst['rank']}: {format_ns(worst['first_ns'])} at first, median of its later "
            f"ones {format_ns(worst['later_p50_ns'])}.",
            fields={"configurations": counted(names_n, "configuration")},
            rank=worst["rank"],
            device_id=worst["device_id"],
            name=worst["name"],
            window_ns=(worst["first_start_ns"], worst["first_start_ns"] + worst["first_ns"]),
            impact_ns=lost_ns,
        )
    ]


def _hidden_tails(tails: Sequence[Record]) -> list[Finding]:
    hidden = [row for row in tails if row["hidden"] and not row["second_heap"]]
    if not hidden:
        return []
    hidden.sort(key=lambda row: -(row["tail_score"] or 0.0))
    names = [f"{quoted(shortened(row['name']))} ({_ratios(row)})" for row in hidden[:_NAMES]]
    excess_ns = sum(row["excess_ns"] for row in hidden)
    return [
        RULES["hidden_tails"].finding(
            severity="low",
            fields={
                "configurations": counted(len(hidden), "configuration"),
                "take": "takes" if len(hidden) == 1 else "take",
                "each": "" if len(hidden) == 1 else " each",
            },
            details=f"By tail score: {', '.join(names)}. All of them together spend "
            f"{format_ns(excess_ns)} beyond their medians.",
            name=hidden[0]["name"],
            impact_ns=excess_ns,
        )
    ]


def _ratios(row: Record) -> str:
    return f"max/p50 {row['max_p50']:.1f}, {counted(row['outliers_n'], 'outlier')}"


def of_configuration(frame: pd.DataFrame, row: Record) -> pd.DataFrame:
    """Return the rows of a table that are of one row of tails."""
    keys: dict[str, Any] = {name: row[name] for name in ("name", "config", "communication")}
    mine = pd.Series(True, index=frame.index)
    for name, value in keys.items():
        mine &= frame[name] == value
    return frame[mine]
