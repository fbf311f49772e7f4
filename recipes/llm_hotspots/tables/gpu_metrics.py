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
from dataclasses import dataclass

import numpy as np

from nsys_llm.facts.device.gpus import DeviceMetrics, MetricSums
from nsys_llm.report.columns import Columns, percent, record_columns
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.trace.identity import Rank


@dataclass(frozen=True)
class _MetricRow:
    """A row of the table, its mean and its share not made yet: `weighted` and `sampled_ns`."""

    device_id: int
    gpu_id: int
    gpu_source: str
    metric: str
    period_ns: int
    scope: str
    name: str | None
    samples_n: int
    sampled_ns: int
    own_ns: int
    weighted: int


def gpu_metric_columns(
    parts: Sequence[tuple[Rank, Sequence[str], Sequence[DeviceMetrics]]],
    shown: Mapping[str, Classification],
    top: Sequence[str],
) -> Columns:
    """Return the table gpu_metrics."""
    rows = [
        (rank, row)
        for rank, names, devices in parts
        for device in devices
        for row in _rows(device, names, shown, top)
    ]
    columns = record_columns(rows, *_MetricRow.__dataclass_fields__)
    weighted, sampled_ns, own_ns = (
        np.array(columns.pop(name), dtype=np.int64) for name in ("weighted", "sampled_ns", "own_ns")
    )
    none = own_ns == 0
    return {
        **columns,
        "mean_pct": np.where(none, np.nan, weighted / np.where(none, 1, own_ns)),
        "own_ns": own_ns,
        "own_pct": percent(own_ns, sampled_ns),
    }


def _rows(
    device: DeviceMetrics,
    names: Sequence[str],
    shown: Mapping[str, Classification],
    top: Sequence[str],
) -> Iterator[_MetricRow]:
    place = device.device_id, device.link.gpu_id, device.link.source
    for metric in device.metrics:
        for scope, name, sums in _scoped(metric, names, shown, top):
            yield _MetricRow(*place, metric.metric, metric.period_ns, scope, name, *sums)


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
