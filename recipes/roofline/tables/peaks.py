"""What is divided by: peaks of each rank's GPU, and over how many GPUs the model is spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from nsys_llm.facts.roofline.rank import RankRoofline
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.collectives.stages import find_stages
from nsys_llm.manifest.model_config import ModelConfig
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.gpus import gpu_peak
from nsys_llm.trace.identity import Rank

from .step_work import ModelLayout, stored_bytes

#: A row of a table by column name.
Row = dict[str, Any]
RankRows = Sequence[tuple[Rank, RankRoofline]]

TERA: Final = 1e12
GIGA: Final = 1e9
WRONG_MODEL: Final = "wrong_model"
_OPTION: Final = "option"
_KV_BYTES: Final = {"fp8": 1.0, "int8": 1.0, "fp16": 2.0, "bf16": 2.0, "fp32": 4.0}
#: What of a model does not fit.
MEMORY, RANKS, LAYERS = "memory", "ranks", "layers"
#: All-reduces of a step from which on they are those of layers, and how many may be of others.
_LEAST_REDUCES: Final = 5
_OTHERS: Final = 2
_EXPERTS: Final = ("dispatch", "combine", "all_to_all", SEND_RECV)


@dataclass(frozen=True)
class Peaks:
    """What a rank is compared with; None where it is not known.

    Attributes:
        model: That of --model.
        layout: Over how many GPUs it is.
        reason: Why steps have no roofline; None where they have one.
        flops_s: Of the model's type; `by_type` by type of operands.
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


class _Spread(NamedTuple):
    """Over how many GPUs a model is, how that is known, or why it is not.

    Attributes:
        joined_n: Ranks that all-reduces join, where --tp says another number than they may.
    """

    layout: ModelLayout | None = None
    basis: str | None = None
    reason: str | None = None
    joined_n: int | None = None


def find_peaks(
    rows: RankRows, matched: MatchedCollectives, options: Mapping[str, Any]
) -> list[Peaks]:
    """Return what each rank is compared with."""
    fields = options["model"]
    model = None if fields is None else ModelConfig.of(fields)
    spread = _Spread() if model is None else _spread(model, rows, matched, options)
    return [_peaks(rank, part, model, spread, options) for rank, part in rows]


def _peaks(
    rank: Rank,
    part: RankRoofline,
    model: ModelConfig | None,
    spread: _Spread,
    options: Mapping[str, Any],
) -> Peaks:
    layout, basis, reason, joined_n = spread
    gpu, listed = part.gpu, gpu_peak(part.gpu.name, part.gpu.sms_n)
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
    kv_bytes = _KV_BYTES.get(options["kv_dtype"], 0.0 if model is None else model.kv_bytes)
    fit: Row = {}
    if model is not None and model.reason is None and layout is not None:
        fit = _fit(model, layout, part, joined_n)
        reason = reason or (WRONG_MODEL if fit["misfit"] else None)
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
        **fit,
        "kv_bytes": kv_bytes or None,
        "reason": reason,
    }
    return Peaks(model, layout, reason, bandwidth, flops_s, by_type, kv_bytes, row)


def _fit(model: ModelConfig, layout: ModelLayout, part: RankRoofline, joined_n: int | None) -> Row:
    """Return what a model has and what is seen of that, and which of it contradicts the other."""
    weights_bytes, launches = stored_bytes(model, layout), part.launches
    seen_n, has_n = launches.attention_n, model.layers_n
    if not seen_n and layout.tp > 1 and launches.all_reduces_n >= _LEAST_REDUCES:
        seen_n = 0 if model.experts is not None else launches.all_reduces_n // model.all_reduces_n
    # Each layer may run in several parts; a few launches more may be of a model that guesses.
    is_other = seen_n < has_n or (2 * seen_n > 3 * has_n and seen_n % has_n > _OTHERS)
    misfit = None
    if part.gpu.memory_bytes is not None and weights_bytes > part.gpu.memory_bytes:
        misfit = MEMORY
    elif joined_n is not None and joined_n > 1 and joined_n != layout.tp:
        misfit = RANKS
    elif seen_n and is_other:
        misfit = LAYERS
    return {
        "joined_ranks_n": joined_n,
        "layers_n": has_n,
        "layers_seen_n": seen_n or None,
        "weights_bytes": weights_bytes,
        "misfit": misfit,
    }


def _spread(
    model: ModelConfig, rows: RankRows, matched: MatchedCollectives, options: Mapping[str, Any]
) -> _Spread:
    if model.reason is not None:
        return _Spread(reason=model.reason)
    used = {lane.operation for _, part in rows for lane in part.lanes}
    ep = options["ep"]
    if model.experts is not None and ep is None and used & set(_EXPERTS):
        return _Spread(reason="ep")
    if find_stages(matched).pipelines or (model.experts is None and SEND_RECV in used):
        return _Spread(reason="pipeline")
    sizes = {len(item.owners) for item in matched.sequences if item.operation == "all_reduce"}
    joined_n, serves = sizes.pop() if len(sizes) == 1 else None, options["tokens_per_step"] is None
    if options["tp"] is not None:
        layout = ModelLayout(options["tp"], ep)
        return _Spread(layout, _OPTION, joined_n=joined_n if serves else None)
    if not serves:
        return _Spread(ModelLayout(1, ep), "tokens of all ranks")
    if "all_reduce" not in used:
        return _Spread(ModelLayout(1, ep), "no all-reduce")
    if joined_n is None:
        return _Spread(reason="tp")
    return _Spread(ModelLayout(joined_n, ep), "matched all-reduces")
