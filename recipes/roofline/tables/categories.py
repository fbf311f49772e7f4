"""What the GPU's counters said of each category of kernels: the table `category_roofline`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from nsys_llm.facts.device.gpus import MetricSums
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.categories import rules_for

from .peaks import Peaks, RankRows, Row

#: Fewer samples say nothing, and so do samples that are mostly of other kernels.
LEAST_SAMPLES: Final = 30
LEAST_OWN_PCT: Final = 50.0
_METRICS: Final = {
    "sm_active_pct": r"SMs? Active\b",
    "tensor_active_pct": r"Tensor Active\b",
    "dram_read_pct": r"DRAM Read (?:Throughput|Bandwidth)",
    "dram_write_pct": r"DRAM Write (?:Throughput|Bandwidth)",
}


def category_rows(rows: RankRows, peaks: Sequence[Peaks]) -> list[Row]:
    """Return the rows of `category_roofline`, of each device the longest sampled first."""
    rules = rules_for(name for _, part in rows for name in part.kernels)
    made: list[Row] = []
    for (rank, part), peak in zip(rows, peaks, strict=True):
        category = np.array([rules.classify(name).category for name in part.kernels], dtype=object)
        for device in part.metrics:
            some = [
                of_rank(rank)
                | {"device_id": device.device_id}
                | _row(str(name), np.flatnonzero(category == name), device.metrics, peak)
                for name in sorted(set(category.tolist()))
            ]
            made += sorted(
                (row for row in some if row["samples_n"]),
                key=lambda row: (-row["own_ns"], row["category"]),
            )
    return made


def _row(name: str, places: np.ndarray, metrics: Sequence[MetricSums], peak: Peaks) -> Row:
    values: dict[str, float | None] = dict.fromkeys(_METRICS)
    samples_n = own_ns = sampled_ns = 0
    for sums in metrics:
        column = next((key for key, text in _METRICS.items() if re.match(text, sums.metric)), None)
        if column is None:
            continue
        samples_n, own_ns = int(sums.samples_n[places].sum()), int(sums.own_ns[places].sum())
        sampled_ns = int(sums.sampled_ns[places].sum())
        values[column] = int(sums.weighted[places].sum()) / own_ns if own_ns else None
    own_pct = 100 * own_ns / sampled_ns if sampled_ns else None
    reason = None
    if samples_n < LEAST_SAMPLES or own_pct is None:
        reason = "few samples"
    elif own_pct < LEAST_OWN_PCT:
        reason = "shared samples"
    if reason is not None:
        values = dict.fromkeys(_METRICS)
    read, write = values["dram_read_pct"], values["dram_write_pct"]
    mbu_pct = None if read is None or write is None or read + write > 100 else read + write
    rate = peak.bandwidth_bytes_s
    return {
        "category": name,
        "source": "metrics",
        "samples_n": samples_n,
        "own_ns": own_ns,
        "own_pct": own_pct,
        **values,
        "mbu_pct": mbu_pct,
        "gb_s": None if mbu_pct is None or rate is None else mbu_pct * rate / 100 / 1e9,
        "reason": reason,
    }
