"""What the GPU's counters said while a kernel ran (`--gpu-metrics-devices`).

Method. A sample is the mean over one sampling period, and is taken to speak of the period before
its time stamp (NVIDIA does not say so; it follows from how the counters are read). Each kernel gets
every sample weighted by the time that the kernel ran in its period. With 10 kHz a period is 100 us,
longer than most kernels of a decode step: then a sample is shared, and `own_pct` tells how much of
the sampled time was the kernel's own.

Limits. Only metrics in percent. Samples
belong to a physical GPU; which CUDA device that is, newer exports list by process, older ones do
not (see `gpus`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nsys_llm.facts.device.gpus import MetricSums
from nsys_llm.facts.operations.rank import RankRows
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.categories import Classification


def gpu_metric_rows(
    ranks: RankRows, shown: Mapping[str, Classification], top: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the table gpu_metrics."""
    return [
        {
            **of_rank(rank),
            "device_id": device.device_id,
            "gpu_id": device.link.gpu_id,
            "gpu_source": device.link.source,
            "metric": metric.metric,
            "period_ns": metric.period_ns,
            "scope": scope,
            "name": name,
            "samples_n": samples_n,
            "own_ns": own_ns,
            "own_pct": 100.0 * own_ns / sampled_ns if sampled_ns else None,
            "mean_pct": weighted / own_ns if own_ns else None,
        }
        for rank, part in ranks
        for device in part.metrics
        for metric in device.metrics
        for scope, name, (samples_n, sampled_ns, own_ns, weighted) in _scoped(
            metric, part.names, shown, top
        )
    ]


def _scoped(
    metric: MetricSums,
    names: Sequence[str],
    shown: Mapping[str, Classification],
    top: Sequence[str],
) -> Iterator[tuple[str, str | None, list[int]]]:
    """Yield scope, name and sums of the window, each category that ran, and each top kernel."""
    sums = np.column_stack((metric.samples_n, metric.sampled_ns, metric.own_ns, metric.weighted))
    ran = np.flatnonzero(metric.samples_n[:-1] > 0)
    category = np.array([shown[names[i]].category for i in ran.tolist()], dtype=object)
    place = {names[i]: i for i in ran.tolist()}
    yield "window", None, sums[-1].tolist()
    for name in sorted(set(category.tolist())):
        yield "category", name, sums[ran[category == name]].sum(axis=0).tolist()
    for name in top:
        if name in place:
            yield "kernel", name, sums[place[name]].tolist()
