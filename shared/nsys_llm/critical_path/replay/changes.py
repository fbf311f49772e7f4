"""Weights of a rank with something different. Pure numpy.

Operations keep their steps, and do not slow each other down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.critical_path.path.classes import CLASS_NAMES, CLASS_OF_CAUSE, COMPUTE, COPY
from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.critical_path.replay.links import driver_times
from nsys_llm.critical_path.replay.weights import RankGraph, Weights
from nsys_llm.manifest import what_if
from nsys_llm.manifest.what_if import ReplayChange
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.intervals import IntArray, covered_ns
from nsys_llm.taxonomy.idle_causes import BACK_PRESSURE, MODULE_LOAD
from nsys_llm.taxonomy.kernel_levers import lever_of, load_kernel_levers

#: What a graph takes to launch one of its nodes, ns. Ours.
GRAPH_NODE_NS: Final = 500

_LAUNCH_API: Final = CLASS_NAMES.index("launch_api")


@dataclass(frozen=True)
class Names:
    """What operations and calls are called.

    Attributes:
        kernels: Of operations, by `PathOps.name`.
        api: Shape (calls,), which of them.
    """

    kernels: Sequence[str]
    categories: Sequence[str]
    apis: Sequence[str]
    api: IntArray


def changed(graph: RankGraph, names: Names, change: ReplayChange) -> Weights | None:
    """Return the weights of a rank with something different; None where nothing is."""
    ops = graph.edges.ops
    every = np.ones(len(ops), dtype=bool)
    kernels = [change.name if change.name in text else "" for text in names.kernels]
    if change.what == what_if.CATEGORY:
        return _scaled_ops(graph, _named(graph, names.categories, change.name), change.factor)
    if change.what == what_if.KERNEL:
        return _scaled_ops(graph, _named(graph, kernels, change.name), change.factor)
    if change.what == what_if.KERNELS:
        return _scaled_lever(graph, names, change.name)
    if change.what in (what_if.COPIES, what_if.DEVICE):
        chosen = ops.kind == COPY if change.what == what_if.COPIES else every
        return _scaled_ops(graph, chosen, change.factor)
    if change.what == what_if.HOST:
        return _scaled_host(graph, change.factor)
    if change.what == what_if.LAUNCHES:
        return _cheaper_launches(graph, round(change.factor))
    return _without_waits(graph, names, change.name) if change.what == what_if.WAIT else None


def _scaled_lever(graph: RankGraph, names: Names, lever: str) -> Weights | None:
    if lever not in load_kernel_levers():
        return None
    pairs = zip(names.kernels, names.categories, strict=True)
    of_levers = [lever_of(text, category) or "" for text, category in pairs]
    return _scaled_ops(graph, _named(graph, of_levers, lever), load_kernel_levers()[lever].left)


def _named(graph: RankGraph, texts: Sequence[str], name: str) -> Bools:
    ops = graph.edges.ops
    asked = np.array([text == name for text in texts], dtype=bool)
    return (ops.kind == COMPUTE) & asked[ops.name] if asked.size else np.zeros(len(ops), bool)


def _times(ns: IntArray, factor: float) -> IntArray:
    return np.rint(ns * factor).astype(np.int64)


def _scaled_ops(graph: RankGraph, chosen: Bools, factor: float) -> Weights | None:
    if not chosen.any():
        return None
    op = graph.observed.op
    return replace(graph.observed, op=np.where(chosen, _times(op, factor), op))


def _latency_ns(graph: RankGraph) -> int:
    """Return the usual way from the return of a launch to the start of its operation."""
    known = (graph.edges.ops.place >= 0) & ~graph.in_call
    lag = graph.lags.usual.launch[graph.lags.launch[known]]
    return max(lower_median(lag), 0) if lag.size else 0


def _scaled_host(graph: RankGraph, factor: float) -> Weights | None:
    """Return weights with a faster host.

    The profiler's work, launch latency, and time with nothing to do on the GPU stay.
    """
    seen, host = graph.observed, graph.edges.host
    if not seen.call.size:
        return None
    begun, busy_ns = host.calls.start_ns, np.zeros(seen.gap.size, dtype=np.int64)
    for spans in (host.profiler, *host.away.values()):
        if len(spans):
            busy_ns += covered_ns(begun, spans) - covered_ns(begun - seen.gap, spans)
    # Where in a call the launch was done is not recorded. Usually that is where it returns, or, if
    # the operation began inside of it, the usual latency before.
    in_call_ns = np.minimum(seen.launch, _latency_ns(graph))
    later_ns = in_call_ns + _times(seen.launch - in_call_ns, factor)
    return replace(
        seen,
        call=_times(seen.call, factor),
        gap=busy_ns + _times(seen.gap - busy_ns, factor),
        unblocked=_times(seen.unblocked, factor),
        wake=_times(seen.wake, factor),
        hand=_times(seen.hand, factor),
        launch=np.where(graph.in_call, later_ns, seen.launch),
    )


def _cheaper_launches(graph: RankGraph, price_ns: int) -> Weights | None:
    """Return weights where calls that launch one operation take no more than a price.

    Loading code stays, and waiting for room in the launch queue.
    """
    seen, host = graph.observed, graph.edges.host
    classes = np.array(CLASS_OF_CAUSE)[host.cause]
    single = (classes == _LAUNCH_API) & ~host.graph_launch
    if not (single & (seen.call > price_ns)).any():
        return None
    driver_ns = driver_times(graph.edges, BACK_PRESSURE, MODULE_LOAD)
    call = np.minimum(seen.call, price_ns + driver_ns)
    unblocked = np.where(
        single[graph.waiting], np.minimum(seen.unblocked, price_ns), seen.unblocked
    )
    inside = graph.in_call & single[np.maximum(graph.edges.ops.place, 0)]
    launch = np.minimum(seen.launch, price_ns + _latency_ns(graph))
    return replace(
        seen,
        call=np.where(single, call, seen.call),
        unblocked=unblocked,
        launch=np.where(inside, launch, seen.launch),
    )


def _without_waits(graph: RankGraph, names: Names, name: str) -> Weights | None:
    """Return weights without the waits of an API function; a blocking copy still is launched."""
    seen = graph.observed
    asked = np.array([text == name for text in names.apis], dtype=bool)
    if not asked.any():
        return None
    gone = asked[names.api[graph.waiting]]
    launches = np.zeros(seen.call.size, dtype=bool)
    launches[graph.edges.ops.place[graph.edges.ops.place >= 0]] = True
    unblocked = np.where(gone & ~launches[graph.waiting], 0, seen.unblocked)
    return replace(seen, waits=seen.waits & ~gone[graph.waits.target], unblocked=unblocked)
