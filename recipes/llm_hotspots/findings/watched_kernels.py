"""Findings on the kernels that `--kernel PATTERN` watches."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import format_bytes, quoted, shortened

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
    numbers, ranks = Numbers(), tuple(sorted(set(changed["rank"].tolist())))
    return [
        RULES["configuration_change"].finding(
            details=f"On rank {after['rank']}: {_shape(before)} "
            f"({_how_often(before, 'before', numbers)}), then {_shape(after)} "
            f"({_how_often(after, 'after', numbers)}). "
            f"{numbers.counted('ranks_n', len(ranks), 'rank')} affected.",
            numbers=numbers.fields,
            fields={"kernel": quoted(shortened(str(after["name"])))},
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
        numbers = Numbers()
        configurations = numbers.count("configurations_n", len(group))
        reported.append(
            RULES["mixed_configurations"].finding(
                details=f"{_shape(low)} ({_how_often(low, 'low', numbers)}); {_shape(high)} "
                f"({_how_often(high, 'high', numbers)}).",
                numbers=numbers.fields,
                fields={
                    "kernel": quoted(shortened(str(name))),
                    "configurations_n": configurations,
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


def _how_often(config: Record, name: str, numbers: Numbers) -> str:
    launches = numbers.count(f"{name}_launches_n", config["launches_n"])
    return f"{launches} launches, median {numbers.ns(f'{name}_p50_ns', config['p50_ns'])}"


def _shape(config: Record) -> str:
    """Return a configuration in words; `?` for what was not recorded."""
    sizes = ["?" if config[name] is None else str(config[name]) for name in _CONFIG]
    shared = config["dynamic_shared_bytes"]
    memory = "" if not shared else f", {format_bytes(shared)} shared"
    return quoted(f"grid {'x'.join(sizes[:3])}, block {'x'.join(sizes[3:])}{memory}")
