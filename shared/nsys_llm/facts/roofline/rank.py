"""Reduces one rank: its GPU, products with shapes, GPU metrics, and steps of a known model."""

from __future__ import annotations

from collections.abc import Mapping

from nsys_llm.facts.device.gpu_metrics import map_gpu_metrics
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.roofline.gemms import map_gemms
from nsys_llm.facts.roofline.gpu import rank_gpu
from nsys_llm.facts.roofline.kept import RankRoofline
from nsys_llm.facts.roofline.layers import LayerLaunches, layer_launches
from nsys_llm.facts.roofline.step_classes import map_step_classes
from nsys_llm.facts.steps.step_times import step_times
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.identity import RankKey


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
