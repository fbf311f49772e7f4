"""What few captures record of a rank, or an option asks for."""

from __future__ import annotations

from dataclasses import dataclass

from nsys_llm.facts.device.gpu_metrics import DeviceMetrics, map_gpu_metrics
from nsys_llm.facts.operations.callstacks import CallStack, map_callstacks
from nsys_llm.facts.operations.cuda_graphs import ReplayTimes, map_cuda_graphs
from nsys_llm.facts.operations.kernels import KernelNames
from nsys_llm.facts.operations.memory import MemorySeries, map_memory
from nsys_llm.facts.rank_view import RankView


@dataclass(frozen=True)
class RankExtras:
    """One rank; each part is described where it is made."""

    callstacks: tuple[CallStack, ...] = ()
    memory: tuple[MemorySeries, ...] = ()
    metrics: tuple[DeviceMetrics, ...] = ()
    cuda_graphs: ReplayTimes | None = None


def map_extras(view: RankView, names: KernelNames) -> RankExtras:
    """Reduce one rank."""
    trace, options, global_pid = view.trace, view.options, view.key.global_pid
    return RankExtras(
        callstacks=map_callstacks(trace, options),
        memory=map_memory(trace, global_pid, options),
        metrics=map_gpu_metrics(trace, global_pid, len(names.shown), names.name),
        cuda_graphs=map_cuda_graphs(view),
    )
