"""One rank: its GPU, products with shapes, GPU metrics, and steps of a known model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsys_llm.facts.device.gpus import DeviceMetrics, gpu_links, gpu_value, map_gpu_metrics
from nsys_llm.facts.lanes import LaneRows
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.roofline.gemms import GemmShape, map_gemms
from nsys_llm.facts.roofline.step_classes import (
    LayerLaunches,
    StepClasses,
    layer_launches,
    map_step_classes,
)
from nsys_llm.facts.steps.batches import Batches
from nsys_llm.facts.steps.step_times import StepTimes, step_times
from nsys_llm.taxonomy.gpus import recorded_bandwidth
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.identity import RankKey


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


@dataclass(frozen=True)
class RankRoofline:
    """One rank.

    Attributes:
        kernels: Shown names of its kernels, as `metrics` counts them.
        metrics: Samples of its GPUs.
        gemms: Products whose operators tell shapes.
        batches: What is in each step; None where no engine's format is read.
        times: Of its steps; None without steps, or without a model.
        classes: What its first GPU did in them; None likewise.
        lanes: Its communication kernels; none without a model.
        launches: What each step launches once a layer.
    """

    gpu: RankGpu
    kernels: tuple[str, ...]
    metrics: tuple[DeviceMetrics, ...]
    gemms: tuple[GemmShape, ...]
    batches: Batches | None = None
    times: StepTimes | None = None
    classes: StepClasses | None = None
    lanes: tuple[LaneRows, ...] = ()
    launches: LayerLaunches = field(default_factory=LayerLaunches)


def of(view: RankView) -> Mapping[RankKey, RankRoofline]:
    """Reduce one rank."""
    trace, steps = view.trace, view.steps
    names, code = coded_names(trace.tables["kernels"]["demangled_name_id"], trace.strings)
    metrics = map_gpu_metrics(trace, view.key.global_pid, len(names), code)
    times, launches, has_model = None, LayerLaunches(), view.options.get("model") is not None
    if has_model and steps is not None and set(steps.devices) & set(trace.device_ids):
        times = step_times(view, steps)
        launches = layer_launches(view, steps, times)
    part = RankRoofline(
        gpu=rank_gpu(view),
        kernels=tuple(names),
        metrics=metrics,
        gemms=map_gemms(view),
        batches=view.batches,
        times=times,
        classes=None if times is None else map_step_classes(view, times),
        lanes=view.collectives if has_model else (),
        launches=launches,
    )
    return {view.key: part}
