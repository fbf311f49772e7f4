"""The GPU of a rank, as the profile names it."""

from __future__ import annotations

from dataclasses import dataclass

from nsys_llm.facts.device.gpus import gpu_links, gpu_value
from nsys_llm.facts.rank_view import RankView
from nsys_llm.taxonomy.gpu_peaks import recorded_bandwidth


@dataclass(frozen=True)
class RankGpu:
    """The first GPU of a rank; None where not known.

    Attributes:
        name: As TARGET_INFO_GPU has it.
        bandwidth_bytes_s: Peak bandwidth of its memory; of a slice that of the slice.
    """

    device_id: int
    name: str | None
    bandwidth_bytes_s: int | None
    memory_bytes: int | None
    sms_n: int | None = None


def rank_gpu(view: RankView) -> RankGpu:
    """Return the GPU of a rank; of several models in one machine none where links are unsure."""
    tables, device_id = view.trace.tables, min(view.trace.device_ids, default=0)
    link = gpu_links(tables, view.key.global_pid, [device_id]).get(device_id)
    gpus = tables.get("gpus")
    names: set[str | None] = set()
    if gpus is not None:
        pairs = zip(gpus["gpu_id"].tolist(), gpus["text"], strict=True)
        named = {gpu: None if text is None else str(text) for gpu, text in pairs}
        names = set(named.values())
        if len(names) > 1 and link is not None and link.source != "cuda_order":
            names = {named.get(link.gpu_id)}
    name, sms_n = names.pop() if len(names) == 1 else None, gpu_value(tables, link, "sms_n")
    bandwidth = gpu_value(tables, link, "bandwidth_bytes_s")
    return RankGpu(
        device_id=device_id,
        name=name,
        bandwidth_bytes_s=recorded_bandwidth(name, sms_n, bandwidth),
        memory_bytes=gpu_value(tables, link, "total_bytes"),
        sms_n=sms_n,
    )
