"""What llm_hotspots tells its reader: the answer in two sentences, and findings.

Made from finished tables alone. Thresholds come from nsys-llm-explainer 0.1 where they say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.view.text import counted, format_ns, format_percent, quoted

from .balance import balance_findings
from .bandwidth import bandwidth_findings
from .details import detail_findings
from .engine_words import in_words_of
from .launches import launch_findings
from .memops import copy_findings
from .secrets import secret_findings
from .waits import wait_findings

_Tables = Mapping[str, pd.DataFrame]

#: Share of the busy time from which one kernel dominates; thresholds of nsys-llm-explainer 0.1.
_DOMINANT_HIGH_PCT: Final = 50.0
_DOMINANT_MEDIUM_PCT: Final = 25.0
#: Unmatched share above which categories say too little; ours.
_UNMATCHED_PCT: Final = 10.0
_TOP_CATEGORIES: Final = 3
_ALSO_SYNC_MEMOP: Final = frozenset({"synchronous_copies", "synchronous_fills"})


def answer(tables: _Tables) -> str:
    """Return where the GPU time goes, in two sentences."""
    devices, categories = tables["devices"], tables["categories"]
    busy_ns, window_ns = int(devices["kernel_busy_ns"].sum()), int(devices["window_ns"].sum())
    if not busy_ns or not window_ns:
        return (
            "No kernel took any time in what was looked at. `coverage` says what the reports hold, "
            "and what a filter left of it."
        )
    ranks_n, devices_n = devices["rank"].nunique(), len(devices)
    where = counted(ranks_n, "rank")
    if devices_n != ranks_n:
        where += f" with {counted(devices_n, 'device')}"
    first = (
        f"At least one kernel ran for {format_percent(100 * busy_ns / window_ns)} of the window "
        f"({format_ns(busy_ns)} of {format_ns(window_ns)}, {where}"
        f"{' together' if devices_n > 1 else ''})."
    )
    top = categories[categories["exclusive_ns"] > 0].head(_TOP_CATEGORIES)
    shares = [
        f"{quoted(name)} {format_percent(share)}"
        for name, share in zip(top["category"], top["busy_pct"], strict=True)
    ]
    heaviest = tables["kernels"].iloc[0]
    return (
        f"{first} The largest {'parts' if len(shares) > 1 else 'part'} of that "
        f"{'are' if len(shares) > 1 else 'is'} {_and(shares)}; the heaviest kernel is "
        f"{quoted(heaviest['name'])} with {format_percent(heaviest['busy_pct'])}."
    )


def findings(tables: _Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    found = [
        *_dominant_kernel(tables),
        *_unmatched(tables),
        *balance_findings(tables),
        *bandwidth_findings(tables),
        *copy_findings(tables),
        *detail_findings(tables),
        *launch_findings(tables),
        *secret_findings(tables),
        *wait_findings(tables),
    ]
    # Both are about the same calls; what they cost the host says more than how long they run.
    if any(one.rule == "sync_memop" for one in found):
        found = [one for one in found if one.rule not in _ALSO_SYNC_MEMOP]
    engines = tables["categories"]["engine"]
    return in_words_of(str(engines.iloc[0]) if len(engines) else None, found)


def _dominant_kernel(tables: _Tables) -> list[Finding]:
    kernels = tables["kernels"]
    heavy = kernels[kernels["busy_pct"].fillna(0) >= _DOMINANT_MEDIUM_PCT]
    return [_dominant(tables, row) for _, row in heavy.iterrows()]


def _dominant(tables: _Tables, kernel: pd.Series) -> Finding:
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
    return Finding(
        rule="dominant_kernel",
        severity="high" if kernel["busy_pct"] >= _DOMINANT_HIGH_PCT else "medium",
        scope="kernel",
        name=name,
        rank=int(most["rank"]),
        device_id=int(most["device_id"]),
        window_ns=_window(tables["devices"], most),
        window_shows="all of that rank",
        title=f"{quoted(name)}{what} takes {share} of the kernel time",
        evidence=f"{format_ns(kernel['exclusive_ns'])} of "
        f"{format_ns(tables['devices']['kernel_busy_ns'].sum())} with a kernel running, in "
        f"{launches}{_durations(kernel)}. "
        f"Rank {most['rank']} has most of it: {format_ns(by_rank.max())}.",
        tables=("kernels", "rank_kernels", "devices"),
        recommendation="Whatever makes this kernel faster, or rarer, moves the whole run: look at "
        "its shapes and launch configurations first, then at it alone in Nsight Compute.",
        impact_ns=int(kernel["exclusive_ns"]),
    )


def _durations(kernel: pd.Series) -> str:
    if pd.isna(kernel["p50_ns"]):
        # It reaches into the window, but no launch of it starts there.
        return ""
    return f"; median {format_ns(kernel['p50_ns'])}, p99 {format_ns(kernel['p99_ns'])}"


def _unmatched(tables: _Tables) -> list[Finding]:
    categories = tables["categories"]
    rows = categories[categories["category"] == UNMATCHED]
    if rows.empty or not rows["busy_pct"].fillna(0).iloc[0] >= _UNMATCHED_PCT:
        return []
    row, kernels = rows.iloc[0], tables["kernels"]
    unknown = kernels[kernels["category"] == UNMATCHED]
    heaviest = f"; the heaviest is {quoted(unknown['name'].iloc[0])}" if len(unknown) else ""
    return [
        Finding(
            rule="unmatched_kernels",
            severity="low",
            scope="category",
            name=UNMATCHED,
            title=f"No rule knows the kernels of {format_percent(row['busy_pct'])} of the kernel "
            "time",
            evidence=f"{counted(int(row['kernels_n']), 'kernel name')}, "
            f"{format_ns(row['exclusive_ns'])}{heaviest}.",
            tables=("categories", "kernels", "rules"),
            recommendation="Read the other categories as lower bounds. `--engine` chooses another "
            "rule file if the engine was not told by the names.",
            impact_ns=int(row["exclusive_ns"]),
        )
    ]


def _window(devices: pd.DataFrame, row: pd.Series) -> tuple[int, int] | None:
    mine = devices[(devices["rank"] == row["rank"]) & (devices["device_id"] == row["device_id"])]
    if mine.empty or mine["window_start_ns"].isna().iloc[0]:
        return None
    return int(mine["window_start_ns"].iloc[0]), int(mine["window_end_ns"].iloc[0])


def _and(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
