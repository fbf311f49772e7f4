"""Findings on the kernels that `--kernel PATTERN` watches."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import format_bytes, shortened

from .texts import LEAST_LAUNCHES, RULES, SHAPE_RATIO

#: Kernels of one pattern that a finding tells of.
MOST_MIXED: Final = 3

_CONFIG: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def watched_kernel_findings(tables: Tables) -> list[Finding]:
    """Return the findings on watched_kernel_configs and rank_watched_kernel_configs."""
    return [*_changed_configuration(tables), *_mixed_configurations(tables)]


def _changed_configuration(tables: Tables) -> list[Finding]:
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
    before, after = records(configs.loc[chosen - 1 : chosen])
    ranks = tuple(sorted(set(changed["rank"].tolist())))
    return [
        RULES["configuration_change"].finding(
            fields={
                "kernel": shortened(str(after["name"])),
                **_configuration("before", before),
                **_configuration("after", after),
                "ranks_n": len(ranks),
            },
            ranks=ranks,
            rank=int(after["rank"]),
            name=str(after["name"]),
            window_ns=(int(before["last_start_ns"]), int(after["first_start_ns"]) + 1),
            impact_ns=int(after["total_ns"]),
        )
    ]


def _mixed_configurations(tables: Tables) -> list[Finding]:
    configs = tables["watched_kernel_configs"]
    configs = configs[configs["launches_n"] >= LEAST_LAUNCHES]
    reported: list[Finding] = []
    for name, group in configs.groupby("name", sort=True):
        low, high = (records(group.loc[[end]])[0] for end in _ends(group["p50_ns"]))
        if len(group) < 2 or high["p50_ns"] < SHAPE_RATIO * low["p50_ns"]:
            continue
        reported.append(
            RULES["mixed_configurations"].finding(
                fields={
                    "kernel": shortened(str(name)),
                    "configurations_n": len(group),
                    **_configuration("low", low),
                    **_configuration("high", high),
                },
                name=str(name),
                impact_ns=int(group["total_ns"].sum()),
            )
        )
    return sorted(reported, key=lambda finding: -finding.impact_ns)[:MOST_MIXED]


def _ends(values: pd.Series[Any]) -> tuple[Any, Any]:
    """Return the row labels of the least and the greatest value."""
    ordered = values.astype("float64").sort_values(kind="stable")
    return ordered.index[0], ordered.index[-1]


def _configuration(name: str, config: Record) -> dict[str, Any]:
    """Return the fields of a configuration; in its shape `?` is what was not recorded."""
    sizes = ["?" if config[size] is None else str(config[size]) for size in _CONFIG]
    shared = config["dynamic_shared_bytes"]
    memory = f", {format_bytes(shared)} shared" if shared else ""
    return {
        f"{name}_shape": f"grid {'x'.join(sizes[:3])}, block {'x'.join(sizes[3:])}{memory}",
        f"{name}_launches_n": config["launches_n"],
        f"{name}_p50_ns": config["p50_ns"],
    }
