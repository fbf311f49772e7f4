"""What is divided by: peaks of each rank's GPU, and over how many GPUs the model is spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nsys_llm.analyses.collectives.matched import MatchedCollectives
from nsys_llm.analyses.collectives.stages import find_stages
from nsys_llm.manifest.model_config import BYTES, ModelConfig
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.gpu_peaks import gpu_peak
from nsys_llm.trace.identity import Rank

from ..partials import RankRoofline
from .step_work import ModelLayout, stored_bytes

#: A row of a table by column name.
Row = dict[str, Any]
RankRows = Sequence[tuple[Rank, RankRoofline]]

TERA: Final = 1e12
GIGA: Final = 1e9
WRONG_MODEL: Final = "wrong_model"
_OPTION: Final = "option"
_KV_BYTES: Final = {"fp8": 1.0, "int8": 1.0, "fp16": 2.0, "bf16": 2.0, "fp32": 4.0}
_EXPERTS: Final = ("dispatch", "combine", "all_to_all", SEND_RECV)


@dataclass(frozen=True)
class Peaks:
    """What a rank is compared with.

    Attributes:
        model: That of --model; None without.
        layout: Over how many GPUs it is; None where not known.
        reason: Why steps have no roofline; None where they have one.
        bandwidth_bytes_s: Of the GPU's memory; None where not known.
        flops_s: Of the model's type; None where not known.
        by_type: Peaks by type of operands.
        kv_bytes: Bytes of a number in the KV cache.
        row: Of the table `peaks`.
    """

    model: ModelConfig | None
    layout: ModelLayout | None
    reason: str | None
    bandwidth_bytes_s: float | None
    flops_s: float | None
    by_type: Mapping[str, float]
    kv_bytes: float
    row: Row


def find_peaks(
    rows: RankRows, matched: MatchedCollectives, options: Mapping[str, Any]
) -> list[Peaks]:
    """Return what each rank is compared with."""
    fields = options["model"]
    model = None if fields is None else ModelConfig.of(fields)
    layout, basis, reason = None, None, None
    if model is not None:
        layout, basis, reason = _layout(model, rows, matched, options)
    return [_peaks(rank, part, model, (layout, basis, reason), options) for rank, part in rows]


def _peaks(
    rank: Rank,
    part: RankRoofline,
    model: ModelConfig | None,
    spread: tuple[ModelLayout | None, str | None, str | None],
    options: Mapping[str, Any],
) -> Peaks:
    layout, basis, reason = spread
    gpu, listed = part.gpu, gpu_peak(part.gpu.name)
    by_type: dict[str, float] = {} if listed is None else dict(listed.flops_s)
    source = None if listed is None else listed.source
    kind = None if model is None or model.reason else model.compute
    flops_s = None if kind is None else by_type.get(kind)
    if options["peak_flops"] is not None:
        flops_s, source = options["peak_flops"] * TERA, _OPTION
        by_type = dict.fromkeys(("fp8", "int8", "fp16", "bf16", "tf32", "fp32"), flops_s)
    bandwidth, measured = gpu.bandwidth_bytes_s, "profile"
    if options["peak_bandwidth"] is not None:
        bandwidth, measured = options["peak_bandwidth"] * GIGA, _OPTION
    kv_bytes = 0.0 if model is None else model.kv_bytes
    if options["kv_dtype"] in _KV_BYTES:
        kv_bytes = _KV_BYTES[options["kv_dtype"]]
    if model is not None and model.reason is None and layout is not None and reason is None:
        too_large = gpu.memory_bytes is not None and (
            stored_bytes(model, layout) > gpu.memory_bytes
        )
        reason = WRONG_MODEL if too_large else None
    row = {
        **of_rank(rank),
        "device_id": gpu.device_id,
        "gpu": gpu.name,
        "bandwidth_gb_s": None if bandwidth is None else bandwidth / GIGA,
        "bandwidth_source": None if bandwidth is None else measured,
        "compute_type": kind,
        "peak_tflops": None if flops_s is None else flops_s / TERA,
        "flops_source": source,
        "tp": None if layout is None else layout.tp,
        "tp_source": basis,
        "ep": None if layout is None else layout.ep,
        "weights_bytes": None
        if model is None or model.reason or layout is None
        else stored_bytes(model, layout),
        "dtype_bytes": None if model is None or model.reason else BYTES[model.dtype],
        "kv_bytes": kv_bytes or None,
        "reason": reason,
    }
    return Peaks(model, layout, reason, bandwidth, flops_s, by_type, kv_bytes, row)


def _layout(
    model: ModelConfig, rows: RankRows, matched: MatchedCollectives, options: Mapping[str, Any]
) -> tuple[ModelLayout | None, str | None, str | None]:
    """Return over how many GPUs a model is spread, how that is known, and why it is not."""
    if model.reason is not None:
        return None, None, model.reason
    used = {lane.operation for _, part in rows for lane in part.lanes}
    ep = options["ep"]
    if model.experts is not None and ep is None and used & set(_EXPERTS):
        return None, None, "ep"
    if find_stages(matched).pipelines or (model.experts is None and SEND_RECV in used):
        return None, None, "pipeline"
    if options["tp"] is not None:
        return ModelLayout(options["tp"], ep), _OPTION, None
    if options["tokens_per_step"] is not None:
        return ModelLayout(1, ep), "tokens of all ranks", None
    if "all_reduce" not in used:
        return ModelLayout(1, ep), "no all-reduce", None
    sizes = {len(item.owners) for item in matched.sequences if item.operation == "all_reduce"}
    if len(sizes) != 1:
        return None, None, "tp"
    return ModelLayout(sizes.pop(), ep), "matched all-reduces", None
