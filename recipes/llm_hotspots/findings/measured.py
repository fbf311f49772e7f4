"""Findings on device memory and GPU metrics, where a capture has them.

Each rule speaks once, of the worst rank, and says how many ranks are like it.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.view.text import quoted

from ..extras.gpu_metrics import BY_ORDER
from .texts import (
    DRAM_BOUND_PCT,
    GROWTH_BYTES,
    GROWTH_PCT,
    HIGH_TENSOR_PCT,
    LEAST_OWN_PCT,
    LEAST_SAMPLES,
    LOW_TENSOR_PCT,
    NEAR_FULL_PCT,
    RULES,
)

#: Time shown around an instant.
_AROUND_NS: Final = 1_000_000

_GEMM: Final = "gemm"
_KEYS: Final = ("rank", "device_id", "kind")
_QUARTERS: Final = ("quarter_bytes", "half_bytes", "three_quarter_bytes", "end_bytes")


def measured_findings(tables: Tables) -> list[Finding]:
    """Return the findings on memory_watermarks, memory_allocators and gpu_metrics."""
    return [*_near_full(tables), *_growth(tables), *_low_tensor(tables)]


def _near_full(tables: Tables) -> list[Finding]:
    marks = tables["memory_watermarks"]
    full = marks[marks["peak_pct"].fillna(0.0) >= NEAR_FULL_PCT]
    if full.empty:
        return []
    worst = first_record(full.sort_values("peak_pct", ascending=False, kind="stable"))
    numbers = Numbers()
    left = int(worst["total_bytes"] - worst["peak_bytes"])
    return [
        RULES["memory_near_full"].finding(
            details=f"At its peak this process had "
            f"{numbers.bytes('peak_bytes', worst['peak_bytes'])} of "
            f"{numbers.bytes('total_bytes', worst['total_bytes'])} allocated; "
            f"{numbers.bytes('left_bytes', left)} are left for the CUDA context, libraries and "
            "other processes, which are not counted. "
            f"{_who(tables, worst, 'peak_bytes', numbers)}{_other_ranks(full, worst, numbers)}",
            evidence=cells("memory_watermarks", worst, _KEYS, ["peak_ns", "peak_pct"]),
            numbers=numbers.fields,
            fields={
                "rank": worst["rank"],
                "share": numbers.percent("peak_pct", worst["peak_pct"]),
            },
            **_place(full, worst),
            window_ns=_around(worst["peak_ns"]),
        )
    ]


def _growth(tables: Tables) -> list[Finding]:
    marks = tables["memory_watermarks"]
    levels = marks[list(_QUARTERS)]
    grown = marks["end_bytes"] - marks["quarter_bytes"]
    rises = (levels.diff(axis=1).iloc[:, 1:] > 0).all(axis=1) & (grown >= GROWTH_BYTES)
    rises &= (marks["kind"] != "host") & (100 * grown >= GROWTH_PCT * marks["quarter_bytes"])
    growing = marks[rises].assign(grown_bytes=grown[rises])
    if growing.empty:
        return []
    worst = first_record(growing.sort_values("grown_bytes", ascending=False, kind="stable"))
    numbers = Numbers()
    course = ", ".join(numbers.bytes(name, worst[name]) for name in _QUARTERS)
    return [
        RULES["memory_growth"].finding(
            details=f"In use at the end of each quarter of the GPU work: {course} "
            f"({worst['kind']} memory, {numbers.bytes('grown_bytes', worst['grown_bytes'])} more). "
            f"{_who(tables, worst, 'end_bytes', numbers)}{_other_ranks(growing, worst, numbers)}",
            evidence=cells("memory_watermarks", worst, _KEYS, _QUARTERS),
            numbers=numbers.fields,
            fields={"rank": worst["rank"]},
            **_place(growing, worst),
            window_ns=(int(worst["window_start_ns"]), int(worst["window_end_ns"])),
        )
    ]


def _low_tensor(tables: Tables) -> list[Finding]:
    """Return the finding on matrix products that neither tensor cores nor DRAM limit."""
    means = _trusted_means(tables, "category")
    gemms = means[(means["name"] == _GEMM) & (means["tensor_pct"] < LOW_TENSOR_PCT)]
    # Products that memory bandwidth holds back cannot fill tensor cores; where it is not recorded,
    # is unknown.
    gemms = gemms[gemms["dram_pct"] < DRAM_BOUND_PCT]
    if gemms.empty:
        return []
    kernels = tables["rank_kernels"]
    times = kernels[kernels["category"] == _GEMM].groupby(["rank", "device_id"])["exclusive_ns"]
    spent_ns = times.sum()
    rows = {(row["rank"], row["device_id"]): row for row in records(gemms)}
    saved_ns = {
        gpu: int(spent_ns.get(gpu, 0)) * (1.0 - row["tensor_pct"] / HIGH_TENSOR_PCT)
        for gpu, row in rows.items()
    }
    gpu = max(saved_ns, key=lambda gpu: saved_ns[gpu])
    worst, numbers = rows[gpu], Numbers()
    tensor = numbers.percent("tensor_pct", worst["tensor_pct"])
    return [
        RULES["low_tensor_activity"].finding(
            cause=Cause("kernels", detail=_GEMM),
            change=Change("kernels", time_ns=saved_ns[gpu]),
            details=f"Over {numbers.count('samples_n', worst['samples_n'])} samples in the time of "
            f"category {quoted(_GEMM)} on rank {worst['rank']}, "
            f"{numbers.ns('gemm_ns', int(spent_ns.get(gpu, 0)))}: tensor cores {tensor}, DRAM "
            f"{numbers.percent('dram_pct', worst['dram_pct'])}. Neither is near its limit; large "
            f"products reach {numbers.percent('high_tensor_pct', HIGH_TENSOR_PCT)}."
            f"{_other_ranks(gemms, worst, numbers)}",
            numbers=numbers.fields,
            fields={"rank": worst["rank"], "share": tensor},
            **_place(gemms, worst),
            name=_GEMM,
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
        "dram_pct": rows[rows["metric"].str.match(r"DRAM (?:Read|Write) (?:Bandwidth|Throughput)")],
    }
    means = rows.groupby(keys)[["samples_n", "own_ns"]].max()
    for name, part in parts.items():
        means[name] = part.groupby(keys)["mean_pct"].sum(min_count=1)
    return means.astype({name: "float64" for name in parts}).reset_index()


def _place(rows: pd.DataFrame, worst: Record) -> dict[str, Any]:
    """Return where a finding is, as its attributes."""
    ranks = tuple(sorted(set(rows["rank"].tolist())))
    return {"ranks": ranks, "rank": worst["rank"], "device_id": worst["device_id"]}


def _other_ranks(rows: pd.DataFrame, worst: Record, numbers: Numbers) -> str:
    """Return a sentence that counts the ranks, or nothing where there is one."""
    ranks_n = rows["rank"].nunique()
    if ranks_n < 2:
        return ""
    affected = numbers.counted("ranks_n", ranks_n, "rank")
    return f" {affected} affected; rank {worst['rank']} is the worst."


def _around(at_ns: int) -> tuple[int, int]:
    return max(int(at_ns) - _AROUND_NS, 0), int(at_ns) + _AROUND_NS


def _who(tables: Tables, worst: Record, column: str, numbers: Numbers) -> str:
    """Say which API function most of the memory came from."""
    rows = tables["memory_allocators"]
    for key in _KEYS:
        rows = rows[rows[key] == worst[key]]
    rows = rows[rows["api"].notna()].sort_values(column, ascending=False, kind="stable")
    if rows.empty:
        return "The calls that allocated it were not recorded."
    most = first_record(rows)
    return f"{numbers.bytes('from_api_bytes', most[column])} of it came from {quoted(most['api'])}."
