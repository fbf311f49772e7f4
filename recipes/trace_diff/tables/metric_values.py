"""The values of metrics without an argument, of one run: exact, and None where nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from nsys_llm.taxonomy.api_classes import classify_api

from ..partials import idle_total_ns
from .collectives import CollectiveSums
from .runs import Run

PER_STEP: Final = "_per_step"
#: Metrics that are shares, or of one call: they compare runs of any length.
SHARES: Final = ("idle_pct", "exposed_comm_pct", "kernel_per_call")
#: Metrics that rest on single kernels: where a CUDA graph is one row, they see only what ran
#: outside.
_OF_KERNELS: Final = (
    "gpu_time",
    "kernel_launches",
    "exposed_comm",
    "exposed_comm_pct",
    "comm_wait",
    "comm_transfer",
    "kernel",
    "kernel_per_call",
    "category",
)

Value = Fraction | None


def needs_kernels(metric: str) -> bool:
    """Tell whether a metric is wrong where kernels inside CUDA graphs are not seen."""
    return metric.removesuffix(PER_STEP) in _OF_KERNELS


def _sum(of: Callable[[Any], int]) -> Callable[[Run, CollectiveSums], Value]:
    return lambda run, _: Fraction(run.total(of))


def _share(part: int | None, whole: int) -> Value:
    return None if part is None or not whole else Fraction(100 * part, whole)


def _idle(run: Run, _: CollectiveSums) -> Value:
    idle_ns = idle_total_ns(run.devices)
    return None if idle_ns is None else Fraction(idle_ns)


def _api_ns(run: Run, wanted: str | None = None) -> Value:
    """Return the time in API calls; None where none was recorded, though kernels were launched."""
    apis = run.summed_names(lambda sums: sums.apis)
    if not apis:
        return None
    return Fraction(
        sum(ns for name, (_, ns) in apis.items() if wanted is None or classify_api(name) == wanted)
    )


def _matched(run: Run, ns: int, collectives: CollectiveSums) -> Value:
    """Return a sum over matched collectives; None where they have no partner, or no sure one."""
    lonely = not collectives.by_key and run.total(lambda device: device.communication_ns) > 0
    return Fraction(ns) if collectives.is_known and not lonely else None


#: By name, without what stands for per step.
PLAIN: Final[Mapping[str, Callable[[Run, CollectiveSums], Value]]] = {
    "window": lambda run, _: Fraction(run.window_ns, max(len(run.devices), 1)),
    "gpu_time": lambda run, _: Fraction(run.kernel_ns),
    "kernel_launches": lambda run, _: Fraction(run.launches_n),
    "idle_time": _idle,
    "idle_pct": lambda run, _: _share(
        idle_total_ns(run.devices), run.total(lambda device: device.window_ns)
    ),
    "exposed_comm": _sum(lambda device: device.exposed_ns),
    "exposed_comm_pct": lambda run, _: _share(
        run.total(lambda device: device.exposed_ns), run.total(lambda device: device.busy_ns)
    ),
    "comm_wait": lambda run, some: _matched(run, some.whole.wait_ns, some),
    "comm_transfer": lambda run, some: _matched(run, some.whole.transfer_ns, some),
    "copy_time": lambda run, _: Fraction(sum(ns for _, ns, _ in run.moves.values())),
    "copy_bytes": lambda run, _: Fraction(sum(size for _, _, size in run.moves.values())),
    "api_time": lambda run, _: _api_ns(run),
    "sync_time": lambda run, _: _api_ns(run, "host_block"),
}
