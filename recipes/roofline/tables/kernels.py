"""Kernels against what their GPU can do: products by shape, and categories by its counters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from nsys_llm.facts.device.gpus import MetricSums
from nsys_llm.facts.roofline.gemms import GemmShape
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.taxonomy.names import decode_nvjet
from nsys_llm.trace.identity import Rank

from .peaks import Peaks, RankRows, Row

#: Above this the shapes cannot be what the kernels computed.
_OVER_PCT: Final = 105.0
_S: Final = 1e9
#: Types of the operands by kernel names; the first that is in a name.
_TYPES: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("fp8", r"e4m3|e5m2"),
        ("tf32", r"tf32"),
        ("bf16", r"bf16"),
        ("fp16", r"f16f16|fp16|hgemm|_f16_"),
        ("int8", r"i8i8|int8|imma"),
        ("fp32", r"sgemm|f32f32_f32f32"),
    )
)
#: Both operands and the product, in names of cuBLAS and CUTLASS on tensor cores.
_ALL_TYPES: Final = re.compile(r"(bf16|fp16|f16)_s[0-9]+gemm_(bf16|fp16|f16)_")
_BYTES: Final = {
    **{"fp64": 8.0, "fp32": 4.0, "int32": 4.0, "bf16": 2.0, "fp16": 2.0, "f16": 2.0},
    **{"int8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp4_e2m1": 0.5},
}
_OF_NVJET: Final = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp4_e2m1": "fp4"}
_WIDER: Final = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")

#: Fewer samples say nothing, and so do samples that are mostly of other kernels.
LEAST_SAMPLES: Final = 30
LEAST_OWN_PCT: Final = 50.0
_METRICS: Final = {
    "sm_active_pct": r"SMs? Active\b",
    "tensor_active_pct": r"Tensor Active\b",
    "dram_read_pct": r"DRAM Read (?:Throughput|Bandwidth)",
    "dram_write_pct": r"DRAM Write (?:Throughput|Bandwidth)",
}


def gemm_rows(rows: RankRows, peaks: Sequence[Peaks]) -> list[Row]:
    """Return the rows of `gemm_roofline`, of each rank the longest first."""
    made: list[Row] = []
    for (rank, part), peak in zip(rows, peaks, strict=True):
        some = [_gemm_row(rank, part.gpu.device_id, gemm, peak) for gemm in part.gemms]
        made += sorted(some, key=lambda row: (-row["total_ns"], row["kernel"]))
    return made


def operand_type(kernel: str) -> str | None:
    """Return the type of a kernel's operands, the wider of two; None where no name tells."""
    nvjet = decode_nvjet(kernel)
    if nvjet is not None:
        kinds = [_OF_NVJET.get(kind, kind) for kind in (nvjet.a_type, nvjet.b_type) if kind]
        return min(kinds, key=_WIDER.index) if kinds and set(kinds) <= {*_WIDER} else None
    return next((kind for kind, pattern in _TYPES if pattern.search(kernel)), None)


def element_bytes(kernel: str) -> tuple[float, float, float] | None:
    """Return the bytes of an element of A, B and the product; None where the name does not tell."""
    nvjet = decode_nvjet(kernel)
    kinds: tuple[str | None, ...]
    if nvjet is not None:
        kinds = nvjet.a_type, nvjet.b_type, nvjet.d_type
    else:
        match = _ALL_TYPES.search(kernel)
        kinds = (None,) if match is None else (match[1], match[1], match[2])
    if any(kind not in _BYTES for kind in kinds):
        return None
    a, b, c = (_BYTES[str(kind)] for kind in kinds)
    return a, b, c


def gemm_work(
    shape: tuple[int, int, int, int], sizes: tuple[float, float, float] | None
) -> tuple[int, float | None]:
    """Return FLOPs and least bytes of a product of batch, M, N, K; bytes None without sizes."""
    batch, m, n, k = shape
    flops = 2 * batch * m * n * k
    if sizes is None:
        return flops, None
    return flops, batch * (m * k * sizes[0] + k * n * sizes[1] + m * n * sizes[2])


def _gemm_row(rank: Rank, device_id: int, gemm: GemmShape, peak: Peaks) -> Row:
    kind, p50_ns = operand_type(gemm.kernel), float(np.median(gemm.times_ns))
    batch, m, n, k = gemm.shape or (None,) * 4
    row: Row = {
        **of_rank(rank),
        "device_id": device_id,
        "kernel": gemm.kernel,
        **{"batch": batch, "m": m, "n": n, "k": k},
        "operators_n": gemm.times_ns.size,
        "launches_n": gemm.launches_n,
        "total_ns": int(gemm.times_ns.sum()),
        "p50_ns": p50_ns,
        "type": kind,
    }
    if gemm.shape is None:
        return row | {"reason": "operator"}
    flops, size_bytes = gemm_work(gemm.shape, element_bytes(gemm.kernel))
    flops_s = peak.by_type.get(kind or "")
    row |= {"flops": flops, "bytes": size_bytes}
    if kind is None or flops_s is None or not p50_ns:
        return row | {"reason": "type" if kind is None else "peak"}
    row |= {"peak_tflops": flops_s / 1e12, "mfu_pct": 100 * _S * flops / flops_s / p50_ns}
    rate = peak.bandwidth_bytes_s
    mbu_pct = 0.0
    if size_bytes is not None and rate is not None:
        row["mbu_pct"] = mbu_pct = 100 * _S * size_bytes / rate / p50_ns
        row["bound"] = "memory" if mbu_pct >= row["mfu_pct"] else "compute"
    if row["mfu_pct"] > _OVER_PCT or mbu_pct > 100:
        # Operands may stay in the L2 cache: bytes above the memory's peak tell nothing.
        over = "over_peak" if row["mfu_pct"] > _OVER_PCT else "cache"
        gone = ("mfu_pct", "mbu_pct", "bound") if over == "over_peak" else ("mbu_pct",)
        return row | dict.fromkeys(gone) | {"reason": over}
    return row if row["mfu_pct"] <= 100 else row | {"mfu_pct": 100.0}


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
                | _category_row(str(name), np.flatnonzero(category == name), device.metrics, peak)
                for name in sorted(set(category.tolist()))
            ]
            made += sorted(
                (row for row in some if row["samples_n"]),
                key=lambda row: (-row["own_ns"], row["category"]),
            )
    return made


def _category_row(name: str, places: np.ndarray, metrics: Sequence[MetricSums], peak: Peaks) -> Row:
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
    few, shared = samples_n < LEAST_SAMPLES or own_pct is None, (own_pct or 0) < LEAST_OWN_PCT
    reason = "few samples" if few else "shared samples" if shared else None
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
