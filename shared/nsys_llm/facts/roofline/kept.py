"""What is held against the GPU of one rank. Integers and strings, which merge exactly."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsys_llm.facts.device.gpu_metrics import DeviceMetrics
from nsys_llm.facts.lanes import LaneRows
from nsys_llm.facts.roofline.gemms import GemmShape
from nsys_llm.facts.roofline.gpu import RankGpu
from nsys_llm.facts.roofline.layers import LayerLaunches
from nsys_llm.facts.roofline.step_classes import StepClasses
from nsys_llm.facts.steps.batches import Batches
from nsys_llm.facts.steps.step_times import StepTimes


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
