"""Findings on device memory and GPU metrics, where a capture has them.

Each rule speaks once, of the worst rank, and says how many ranks are like it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.view.text import format_bytes, format_count, format_percent, quoted, shortened

from ..tables.measured import BY_ORDER
from .rows import first_row, other_ranks, place

#: vLLM and SGLang reserve 88 to 92 % by default (gpu_memory_utilization, mem_fraction_static), so
#: that much is intended; from here on less than a twentieth is left for everything else.
NEAR_FULL_PCT: Final = 95.0

#: Growth of memory in use, quarter by quarter, that is told: a proposal. PyTorch's allocator takes
#: blocks of 2 and 20 MiB, so a single one is no growth.
GROWTH_BYTES: Final = 64 << 20
GROWTH_PCT: Final = 2.0

#: Below this, tensor cores are idle most of the time of matrix products that could fill them; a
#: proposal, far below the 60 to 80 % of large GEMMs.
LOW_TENSOR_PCT: Final = 25.0
#: From here on memory bandwidth limits a kernel; below it, Nsight Compute's Speed of Light rule
#: speaks of latency.
DRAM_BOUND_PCT: Final = 60.0
#: A mean of fewer samples, or of samples that are mostly of other kernels, says nothing.
LEAST_SAMPLES: Final = 30
LEAST_OWN_PCT: Final = 50.0

#: Time shown around an instant.
_AROUND_NS: Final = 1_000_000


def measured_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return the findings on memory_watermarks, memory_allocators and gpu_metrics."""
    return [
        *_near_full(tables),
        *_growth(tables),
        *_low_tensor(tables),
        *_dram_bound(tables),
    ]


def _near_full(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    marks = tables["memory_watermarks"]
    full = marks[marks["peak_pct"].fillna(0.0) >= NEAR_FULL_PCT]
    if full.empty:
        return []
    worst = first_row(full.sort_values("peak_pct", ascending=False, kind="stable"))
    left = int(worst["total_bytes"] - worst["peak_bytes"])
    return [
        Finding(
            rule="memory_near_full",
            severity="medium",
            scope="device",
            title=f"Rank {worst['rank']} fills {format_percent(worst['peak_pct'])} of its GPU's "
            "memory",
            evidence=f"At {worst['peak_ns']} ns this process had "
            f"{format_bytes(worst['peak_bytes'])} of {format_bytes(worst['total_bytes'])} "
            f"allocated; {format_bytes(left)} are left for "
            "the CUDA context, libraries and other processes, which are not counted. "
            f"{_who(tables, worst, 'peak_bytes')}{other_ranks(full, worst)}",
            tables=("memory_watermarks", "memory_allocators", "memory"),
            recommendation="Leave more room: a smaller share for the key-value cache "
            "(gpu_memory_utilization in vLLM, mem_fraction_static in SGLang, "
            "free_gpu_memory_fraction in TensorRT-LLM), smaller batches, or activation "
            "checkpointing in training. A peak like this turns the next longer sequence into an "
            "out-of-memory error or into allocator retries.",
            **place(worst),
            window_ns=_around(worst["peak_ns"]),
        )
    ]


def _growth(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    marks = tables["memory_watermarks"]
    levels = marks[["quarter_bytes", "half_bytes", "three_quarter_bytes", "end_bytes"]]
    grown = marks["end_bytes"] - marks["quarter_bytes"]
    rises = (levels.diff(axis=1).iloc[:, 1:] > 0).all(axis=1) & (grown >= GROWTH_BYTES)
    rises &= (marks["kind"] != "host") & (100 * grown >= GROWTH_PCT * marks["quarter_bytes"])
    growing = marks[rises].assign(grown_bytes=grown[rises])
    if growing.empty:
        return []
    worst = first_row(growing.sort_values("grown_bytes", ascending=False, kind="stable"))
    course = ", ".join(format_bytes(worst[name]) for name in levels.columns)
    return [
        Finding(
            rule="memory_growth",
            severity="medium",
            scope="device",
            title=f"Memory in use on rank {worst['rank']} grows in every quarter of the run",
            evidence=f"In use at the end of each quarter of the GPU work: {course} "
            f"({worst['kind']} memory, {format_bytes(worst['grown_bytes'])} more). "
            f"{_who(tables, worst, 'end_bytes')}{other_ranks(growing, worst)}",
            tables=("memory_watermarks", "memory_allocators", "memory"),
            recommendation="Tell warm-up from a leak: capture later and longer; if it still grows, "
            "look for tensors kept in lists, shapes that never repeat (a new allocation or a new "
            "library workspace for each), and CUDA graphs captured again. In PyTorch, "
            "torch.cuda.memory._record_memory_history names the lines.",
            **place(worst),
            window_ns=(int(worst["window_start_ns"]), int(worst["window_end_ns"])),
            capture="--cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
        )
    ]


def _low_tensor(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    means = _trusted_means(tables, "category")
    gemms = means[(means["name"] == "gemm") & (means["tensor_pct"] < LOW_TENSOR_PCT)]
    # Products that memory bandwidth holds back cannot fill tensor cores.
    gemms = gemms[gemms["dram_pct"].fillna(0.0) < DRAM_BOUND_PCT]
    if gemms.empty:
        return []
    worst = first_row(gemms.sort_values("own_ns", ascending=False, kind="stable"))
    dram = "" if pd.isna(worst["dram_pct"]) else f", DRAM {format_percent(worst['dram_pct'])}"
    return [
        Finding(
            rule="low_tensor_activity",
            severity="medium",
            scope="category",
            title="Tensor cores are "
            f"{format_percent(worst['tensor_pct'])} active in matrix products",
            evidence=f"Over {format_count(worst['samples_n'])} samples in the time of category "
            f"{quoted('gemm')} on rank {worst['rank']}: tensor cores "
            f"{format_percent(worst['tensor_pct'])}{dram}. Neither is near its limit."
            f"{other_ranks(gemms, worst)}",
            tables=("gpu_metrics", "rank_categories"),
            recommendation="Look whether the products are small (few tokens a step: batch more), "
            "run in FP32 or TF32 where BF16 or FP8 would do, or have sizes that are no multiple of "
            "the tile (pad them). The table kernels and nvjet name tiles and types.",
            **place(worst),
            name="gemm",
            impact_ns=int(worst["own_ns"]),
        )
    ]


def _dram_bound(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    means = _trusted_means(tables, "kernel")
    bound = means[means["dram_pct"] >= DRAM_BOUND_PCT]
    if bound.empty:
        return []
    worst = first_row(bound.sort_values("own_ns", ascending=False, kind="stable"))
    kernels_n = bound["name"].nunique()
    return [
        Finding(
            rule="dram_bound",
            severity="low",
            scope="kernel",
            title=f"{quoted(shortened(str(worst['name'])))} is bound by memory bandwidth",
            evidence=f"DRAM reads and writes are at {format_percent(worst['dram_pct'])} of their "
            f"peak while it runs on rank {worst['rank']} ({format_count(worst['samples_n'])} "
            f"samples); {format_count(kernels_n)} of the top kernels are bound so.",
            tables=("gpu_metrics", "kernels"),
            recommendation="A faster kernel will not help much; fewer bytes will: quantise weights "
            "or the key-value cache, fuse it with its neighbours, or batch more requests so that "
            "each byte of weights serves more tokens.",
            **place(worst),
            name=str(worst["name"]),
            impact_ns=int(worst["own_ns"]),
        )
    ]


def _trusted_means(tables: Mapping[str, pd.DataFrame], scope: str) -> pd.DataFrame:
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


def _around(at_ns: int) -> tuple[int, int]:
    return max(int(at_ns) - _AROUND_NS, 0), int(at_ns) + _AROUND_NS


def _who(tables: Mapping[str, pd.DataFrame], worst: Mapping[str, Any], column: str) -> str:
    """Say which API function most of the memory came from."""
    rows = tables["memory_allocators"]
    for key in ("rank", "device_id", "kind"):
        rows = rows[rows[key] == worst[key]]
    rows = rows[rows["api"].notna()].sort_values(column, ascending=False, kind="stable")
    if rows.empty:
        return "The calls that allocated it were not recorded."
    most = first_row(rows)
    return f"{format_bytes(most[column])} of it came from {quoted(most['api'])}."
