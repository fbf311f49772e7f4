"""Findings on what few captures record: device memory, GPU metrics, whole graphs.

Each rule on memory and metrics speaks once, of the worst rank, and says how many ranks are like it.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Record, Tables, first_record, records

from ..extras.gpu_metrics import BY_ORDER
from .extra_texts import (
    DRAM_BOUND_PCT,
    GROWTH_BYTES,
    GROWTH_PCT,
    HIGH_TENSOR_PCT,
    LEAST_OWN_PCT,
    LEAST_SAMPLES,
    LOW_TENSOR_PCT,
    NEAR_FULL_PCT,
    WHOLE_GRAPHS_PCT,
)
from .texts import RULES

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
    return [
        RULES["memory_near_full"].finding(
            evidence=cells("memory_watermarks", worst, _KEYS, ["peak_ns", "peak_pct"]),
            fields={
                "peak_bytes": worst["peak_bytes"],
                "total_bytes": worst["total_bytes"],
                "left_bytes": int(worst["total_bytes"] - worst["peak_bytes"]),
                **_who(tables, worst, "peak_bytes"),
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
    return [
        RULES["memory_growth"].finding(
            evidence=cells("memory_watermarks", worst, _KEYS, _QUARTERS),
            fields={"grown_bytes": worst["grown_bytes"], **_who(tables, worst, "end_bytes")},
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
    worst = rows[gpu]
    return [
        RULES["low_tensor_activity"].finding(
            cause=Cause("kernels", detail=_GEMM),
            change=Change("kernels", time_ns=saved_ns[gpu]),
            fields={
                "samples_n": worst["samples_n"],
                "gemm_ns": int(spent_ns.get(gpu, 0)),
                "tensor_pct": worst["tensor_pct"],
                "dram_pct": worst["dram_pct"],
                "high_tensor_pct": HIGH_TENSOR_PCT,
            },
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


def _around(at_ns: int) -> tuple[int, int]:
    return max(int(at_ns) - _AROUND_NS, 0), int(at_ns) + _AROUND_NS


def _who(tables: Tables, worst: Record, column: str) -> dict[str, Any]:
    """Return which API function most of the memory came from, and how much; None: not recorded."""
    rows = tables["memory_allocators"]
    for key in _KEYS:
        rows = rows[rows[key] == worst[key]]
    rows = rows[rows["api"].notna()].sort_values(column, ascending=False, kind="stable")
    most = first_record(rows) if len(rows) else {"api": None, column: None}
    return {"api": most["api"], "from_api_bytes": most[column]}


def graph_findings(tables: Tables) -> list[Finding]:
    """Return the remark on the graph that takes most time, where graphs take much of it."""
    graphs = tables["cuda_graphs"]
    graphs = graphs[graphs["nodes_n"].isna()]  # the most time first
    window_ns = int(tables["devices"]["window_ns"].sum())
    share_pct = 100.0 * int(graphs["span_ns"].sum()) / window_ns if window_ns else 0.0
    if share_pct < WHOLE_GRAPHS_PCT:
        return []
    row = first_record(graphs)
    spread_pct = None
    if row["between_p50_ns"] is not None:
        spread_pct = 100.0 * (row["max_ns"] - row["min_ns"]) / row["p50_ns"]
    return [
        RULES["whole_graphs"].finding(
            evidence=cells(
                "cuda_graphs", row, ["rank", "device_id", "graph"], ["replays_n", "p50_ns"]
            ),
            fields={
                **{name: row[name] for name in ("min_ns", "max_ns", "between_p50_ns")},
                "share_pct": share_pct,
                "spread_pct": spread_pct,
                "others_n": len(graphs) - 1,
            },
            rank=row["rank"],
            device_id=row["device_id"],
            impact_ns=int(row["span_ns"]),
        )
    ]
