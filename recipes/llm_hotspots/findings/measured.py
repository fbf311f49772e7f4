"""Findings on device memory and GPU metrics, where a capture has them.

Each rule speaks once, of the worst rank, and says how many ranks are like it.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, first_record
from nsys_llm.view.text import format_bytes, format_count, format_percent, quoted, shortened

from ..tables.measured import BY_ORDER
from .texts import (
    DRAM_BOUND_PCT,
    GROWTH_BYTES,
    GROWTH_PCT,
    LEAST_OWN_PCT,
    LEAST_SAMPLES,
    LOW_TENSOR_PCT,
    NEAR_FULL_PCT,
    RULES,
)

#: Time shown around an instant.
_AROUND_NS: Final = 1_000_000


def measured_findings(tables: Tables) -> list[Finding]:
    """Return the findings on memory_watermarks, memory_allocators and gpu_metrics."""
    return [
        *_near_full(tables),
        *_growth(tables),
        *_low_tensor(tables),
        *_dram_bound(tables),
    ]


def _near_full(tables: Tables) -> list[Finding]:
    marks = tables["memory_watermarks"]
    full = marks[marks["peak_pct"].fillna(0.0) >= NEAR_FULL_PCT]
    if full.empty:
        return []
    worst = first_record(full.sort_values("peak_pct", ascending=False, kind="stable"))
    left = int(worst["total_bytes"] - worst["peak_bytes"])
    return [
        RULES["memory_near_full"].finding(
            severity="medium",
            details=f"At {worst['peak_ns']} ns this process had "
            f"{format_bytes(worst['peak_bytes'])} of {format_bytes(worst['total_bytes'])} "
            f"allocated; {format_bytes(left)} are left for "
            "the CUDA context, libraries and other processes, which are not counted. "
            f"{_who(tables, worst, 'peak_bytes')}{_other_ranks(full, worst)}",
            fields={"rank": worst["rank"], "share": format_percent(worst["peak_pct"])},
            **_place(worst),
            window_ns=_around(worst["peak_ns"]),
        )
    ]


def _growth(tables: Tables) -> list[Finding]:
    marks = tables["memory_watermarks"]
    levels = marks[["quarter_bytes", "half_bytes", "three_quarter_bytes", "end_bytes"]]
    grown = marks["end_bytes"] - marks["quarter_bytes"]
    rises = (levels.diff(axis=1).iloc[:, 1:] > 0).all(axis=1) & (grown >= GROWTH_BYTES)
    rises &= (marks["kind"] != "host") & (100 * grown >= GROWTH_PCT * marks["quarter_bytes"])
    growing = marks[rises].assign(grown_bytes=grown[rises])
    if growing.empty:
        return []
    worst = first_record(growing.sort_values("grown_bytes", ascending=False, kind="stable"))
    course = ", ".join(format_bytes(worst[name]) for name in levels.columns)
    return [
        RULES["memory_growth"].finding(
            severity="medium",
            details=f"In use at the end of each quarter of the GPU work: {course} "
            f"({worst['kind']} memory, {format_bytes(worst['grown_bytes'])} more). "
            f"{_who(tables, worst, 'end_bytes')}{_other_ranks(growing, worst)}",
            fields={"rank": worst["rank"]},
            **_place(worst),
            window_ns=(int(worst["window_start_ns"]), int(worst["window_end_ns"])),
        )
    ]


def _low_tensor(tables: Tables) -> list[Finding]:
    means = _trusted_means(tables, "category")
    gemms = means[(means["name"] == "gemm") & (means["tensor_pct"] < LOW_TENSOR_PCT)]
    # Products that memory bandwidth holds back cannot fill tensor cores.
    gemms = gemms[gemms["dram_pct"].fillna(0.0) < DRAM_BOUND_PCT]
    if gemms.empty:
        return []
    worst = first_record(gemms.sort_values("own_ns", ascending=False, kind="stable"))
    dram = "" if worst["dram_pct"] is None else f", DRAM {format_percent(worst['dram_pct'])}"
    return [
        RULES["low_tensor_activity"].finding(
            severity="medium",
            details=f"Over {format_count(worst['samples_n'])} samples in the time of category "
            f"{quoted('gemm')} on rank {worst['rank']}: tensor cores "
            f"{format_percent(worst['tensor_pct'])}{dram}. Neither is near its limit."
            f"{_other_ranks(gemms, worst)}",
            fields={"share": format_percent(worst["tensor_pct"])},
            **_place(worst),
            name="gemm",
            impact_ns=int(worst["own_ns"]),
        )
    ]


def _dram_bound(tables: Tables) -> list[Finding]:
    means = _trusted_means(tables, "kernel")
    bound = means[means["dram_pct"] >= DRAM_BOUND_PCT]
    if bound.empty:
        return []
    worst = first_record(bound.sort_values("own_ns", ascending=False, kind="stable"))
    kernels_n = bound["name"].nunique()
    return [
        RULES["dram_bound"].finding(
            severity="low",
            details=f"DRAM reads and writes are at {format_percent(worst['dram_pct'])} of their "
            f"peak while it runs on rank {worst['rank']} ({format_count(worst['samples_n'])} "
            f"samples); {format_count(kernels_n)} of the top kernels are bound so.",
            fields={"kernel": quoted(shortened(str(worst["name"])))},
            **_place(worst),
            name=str(worst["name"]),
            impact_ns=int(worst["own_ns"]),
        )
    ]


def _trusted_means(tables: Tables, scope: str) -> pd.DataFrame:
    """Return tensor and DRAM activity per device and name, where enough samples speak of it."""
    rows = tables["gpu_metrics"]
    rows = rows[(rows["scope"] == scope) & (rows["gpu_source"] != BY_ORDER)]
    rows = rows[(rows["samples_n"] >= LEAST_SAMPLES) & (rows["own_pct"] >= LEAST_OWN_PCT)]
    keys = ["rank", "device_id", "name"]
    parts = {
        "tensor_pct": rows[rows["metric"].str.contains("Tensor Active", regex=False)],
        "dram_pct": rows[rows["metric"].str.match(r"DRAM (?:Read|Write) Bandwidth")],
    }
    means = rows.groupby(keys)[["samples_n", "own_ns"]].max()
    for name, part in parts.items():
        means[name] = part.groupby(keys)["mean_pct"].sum(min_count=1)
    return means.astype({name: "float64" for name in parts}).reset_index()


def _place(row: Record) -> dict[str, Any]:
    """Return where a finding is, as its attributes."""
    return {"rank": row["rank"], "device_id": row["device_id"]}


def _other_ranks(rows: pd.DataFrame, worst: Record) -> str:
    """Return a sentence that counts the other ranks, or nothing."""
    others_n = rows.loc[rows["rank"] != worst["rank"], "rank"].nunique()
    return f" Other ranks like it: {format_count(others_n)}." if others_n else ""


def _around(at_ns: int) -> tuple[int, int]:
    return max(int(at_ns) - _AROUND_NS, 0), int(at_ns) + _AROUND_NS


def _who(tables: Tables, worst: Record, column: str) -> str:
    """Say which API function most of the memory came from."""
    rows = tables["memory_allocators"]
    for key in ("rank", "device_id", "kind"):
        rows = rows[rows[key] == worst[key]]
    rows = rows[rows["api"].notna()].sort_values(column, ascending=False, kind="stable")
    if rows.empty:
        return "The calls that allocated it were not recorded."
    most = first_record(rows)
    return f"{format_bytes(most[column])} of it came from {quoted(most['api'])}."
