"""Findings on what the kernel time is made of: kernels that dominate, kernels of no rule."""

from __future__ import annotations

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables, severity_of
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.view.text import counted, format_ns, format_percent, quoted

from .texts import DOMINANT_PCT, RULES, UNMATCHED_PCT


def category_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about kernels and categories.

    Args:
        tables: Finished tables by name: kernels, rank_kernels, devices, categories.
    """
    return [*_dominant_kernel(tables), *_unmatched(tables)]


def _dominant_kernel(tables: Tables) -> list[Finding]:
    kernels = tables["kernels"]
    heavy = kernels[kernels["busy_pct"].fillna(0) >= min(DOMINANT_PCT.values())]
    return [_dominant(tables, row) for _, row in heavy.iterrows()]


def _dominant(tables: Tables, kernel: pd.Series) -> Finding:
    name = str(kernel["name"])
    own = tables["rank_kernels"]
    own = own[own["name"] == name]
    by_rank = own.groupby("rank", sort=True)["exclusive_ns"].sum()
    most = own[own["rank"] == by_rank.idxmax()].sort_values(
        "exclusive_ns", ascending=False, kind="stable"
    )
    most = most.iloc[0]
    share = format_percent(kernel["busy_pct"])
    launches_n, ranks_n = int(kernel["launches_n"]), int(kernel["ranks_n"])
    launches = f"{counted(launches_n, 'launch', 'launches')} on {counted(ranks_n, 'rank')}"
    what = f", {kernel['operation']}," if pd.notna(kernel["operation"]) else ""
    return RULES["dominant_kernel"].finding(
        severity=severity_of(kernel["busy_pct"], DOMINANT_PCT) or "note",
        details=f"{format_ns(kernel['exclusive_ns'])} of "
        f"{format_ns(tables['devices']['kernel_busy_ns'].sum())} with a kernel running, in "
        f"{launches}{_durations(kernel)}. "
        f"Rank {most['rank']} has most of it: {format_ns(by_rank.max())}.",
        fields={"kernel": quoted(name), "operation": what, "share": share},
        name=name,
        rank=int(most["rank"]),
        device_id=int(most["device_id"]),
        window_ns=_window(tables["devices"], most),
        impact_ns=int(kernel["exclusive_ns"]),
    )


def _durations(kernel: pd.Series) -> str:
    if pd.isna(kernel["p50_ns"]):
        # It reaches into the window, but no launch of it starts there.
        return ""
    return f"; median {format_ns(kernel['p50_ns'])}, p99 {format_ns(kernel['p99_ns'])}"


def _unmatched(tables: Tables) -> list[Finding]:
    categories = tables["categories"]
    rows = categories[categories["category"] == UNMATCHED]
    if rows.empty or not rows["busy_pct"].fillna(0).iloc[0] >= UNMATCHED_PCT:
        return []
    row, kernels = rows.iloc[0], tables["kernels"]
    unknown = kernels[kernels["category"] == UNMATCHED]
    heaviest = f"; the heaviest is {quoted(unknown['name'].iloc[0])}" if len(unknown) else ""
    return [
        RULES["unmatched_kernels"].finding(
            severity="low",
            details=f"{counted(int(row['kernels_n']), 'kernel name')}, "
            f"{format_ns(row['exclusive_ns'])}{heaviest}.",
            fields={"share": format_percent(row["busy_pct"])},
            name=UNMATCHED,
            impact_ns=int(row["exclusive_ns"]),
        )
    ]


def _window(devices: pd.DataFrame, row: pd.Series) -> tuple[int, int] | None:
    mine = devices[(devices["rank"] == row["rank"]) & (devices["device_id"] == row["device_id"])]
    if mine.empty or mine["window_start_ns"].isna().iloc[0]:
        return None
    return int(mine["window_start_ns"].iloc[0]), int(mine["window_end_ns"].iloc[0])
