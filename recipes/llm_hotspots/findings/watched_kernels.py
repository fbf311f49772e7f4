"""Findings on the kernels that `--kernel PATTERN` watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.view.text import format_bytes, format_count, format_ns, quoted, shortened

from .rows import cells

#: Launches before and after a change of configuration, each, and of each configuration that counts.
LEAST_LAUNCHES: Final = 5
#: Ratio of medians between two configurations that makes their shared median meaningless.
SHAPE_RATIO: Final = 2.0
#: Kernels of one pattern that a finding tells of.
MOST_MIXED: Final = 3

_CONFIG: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def watched_kernel_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return the findings on watched_kernel_configs and rank_watched_kernel_configs."""
    return [*_changed_configuration(tables), *_mixed_configurations(tables)]


def _changed_configuration(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    configs = tables["rank_watched_kernel_configs"]
    configs = configs[configs["launches_n"] >= LEAST_LAUNCHES]
    configs = configs.sort_values(["rank", "name", "first_start_ns"], ignore_index=True)
    groups = configs.groupby(["rank", "name"], sort=False)
    # The next configuration begins when none of those before it comes again.
    over = groups["first_start_ns"].shift(-1) > groups["last_start_ns"].cummax()
    changed = configs.loc[configs.index[over.fillna(False)] + 1]
    if changed.empty:
        return []
    chosen = changed["total_ns"].astype("int64").idxmax()
    before, after = cells(configs.loc[chosen - 1]), cells(configs.loc[chosen])
    ranks_n = changed["rank"].nunique()
    return [
        Finding(
            rule="configuration_change",
            severity="low",
            scope="kernel",
            title=f"{quoted(shortened(str(after['name'])))} changes its launch configuration "
            "during the run",
            evidence=f"On rank {after['rank']}: {_shape(before)} until "
            f"{before['last_start_ns']} ns ({_how_often(before)}), {_shape(after)} from "
            f"{after['first_start_ns']} ns on ({_how_often(after)}). "
            f"Ranks with such a change: {ranks_n}.",
            tables=("rank_watched_kernel_configs", "watched_kernels"),
            recommendation="See what changed there: another batch or sequence length, the step "
            "from prefill to decode, or an autotuner's choice. Compare durations within one "
            "configuration only.",
            rank=int(after["rank"]),
            name=str(after["name"]),
            window_ns=(int(before["last_start_ns"]), int(after["first_start_ns"]) + 1),
            impact_ns=int(after["total_ns"]),
        )
    ]


def _mixed_configurations(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    configs = tables["watched_kernel_configs"]
    configs = configs[configs["launches_n"] >= LEAST_LAUNCHES]
    found: list[Finding] = []
    for name, group in configs.groupby("name", sort=True):
        low, high = (cells(group.loc[index]) for index in _ends(group["p50_ns"]))
        if len(group) < 2 or high["p50_ns"] < SHAPE_RATIO * low["p50_ns"]:
            continue
        found.append(
            Finding(
                rule="mixed_configurations",
                severity="note",
                scope="kernel",
                title=f"{quoted(shortened(str(name)))} runs in {len(group)} launch "
                "configurations that take different times",
                evidence=f"Median {format_ns(low['p50_ns'])} with {_shape(low)} "
                f"({format_count(low['launches_n'])} launches), {format_ns(high['p50_ns'])} with "
                f"{_shape(high)} ({format_count(high['launches_n'])} launches).",
                tables=("watched_kernel_configs",),
                recommendation="Read percentiles of this kernel by configuration: pooled over "
                "them, a mix of shapes looks like a tail. tail_stats keeps them apart.",
                name=str(name),
                impact_ns=int(group["total_ns"].sum()),
            )
        )
    return sorted(found, key=lambda one: -one.impact_ns)[:MOST_MIXED]


def _ends(values: pd.Series[Any]) -> tuple[Any, Any]:
    """Return the row labels of the least and the greatest value."""
    ordered = values.astype("float64").sort_values(kind="stable")
    return ordered.index[0], ordered.index[-1]


def _how_often(config: Mapping[str, Any]) -> str:
    return f"{format_count(config['launches_n'])} launches, p50 {format_ns(config['p50_ns'])}"


def _shape(config: Mapping[str, Any]) -> str:
    """Return a configuration in words; `?` for what was not recorded."""
    sizes = ["?" if pd.isna(config[name]) else str(config[name]) for name in _CONFIG]
    shared = config["dynamic_shared_bytes"]
    memory = "" if pd.isna(shared) or not shared else f", {format_bytes(shared)} shared"
    return f"grid {'x'.join(sizes[:3])}, block {'x'.join(sizes[3:])}{memory}"
