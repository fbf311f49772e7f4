"""What the GPU's counters said while a kernel ran (`--gpu-metrics-device`).

Method. A sample is the mean over one sampling period, and is taken to speak of the period before
its time stamp (NVIDIA does not say so; it follows from how the counters are read). Each kernel gets
every sample weighted by the time that the kernel ran in its period. With 10 kHz a period is 100 us,
longer than most kernels of a decode step: then a sample is shared, and `own_pct` tells how much of
the sampled time was the kernel's own.

Limits. Only metrics in percent; of one whose unit is not known the samples are counted. Samples
belong to a physical GPU; which CUDA device that is, newer exports list by process, older ones do
not (see `device_links`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray, clip_to_windows
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.gpu_metrics import is_percent
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

from .device_links import GpuLink, gpu_links
from .sampling import overlaps, sample_windows, weighted_sums

#: The low bits of a metric's type id are the number of its GPU.
_GPU_BITS: Final = 0xFF
#: Values of a metric in percent; others are damage. A few samples do exceed 100.
_LARGEST_VALUE: Final = 1000
_LARGEST_TIME_NS: Final = 1 << 53


@dataclass(frozen=True)
class MetricSums:
    """One metric on one device, by kernel name; arrays of shape (names + 1,), the last for all.

    The last row speaks of the whole window, busy or not.

    Attributes:
        metric: As recorded.
        period_ns: Time of one sample.
        samples_n: Samples in whose time the kernel ran.
        sampled_ns: Their time.
        own_ns: The kernel's time in them.
        weighted: Sum of value times the kernel's time in the sample, percent times ns.
    """

    metric: str
    period_ns: int
    samples_n: IntArray
    sampled_ns: IntArray
    own_ns: IntArray
    weighted: IntArray


@dataclass(frozen=True)
class DeviceMetrics:
    """The metrics of one device of one rank.

    Attributes:
        unknown: Metrics whose unit is not known, each with the number of its samples.
    """

    device_id: int
    link: GpuLink
    metrics: tuple[MetricSums, ...]
    unknown: tuple[tuple[str, int], ...] = ()


def map_gpu_metrics(
    trace: RankTrace, global_pid: int, names_n: int, name: IntArray
) -> tuple[DeviceMetrics, ...]:
    """Reduce the samples of the GPUs behind a rank's devices.

    Args:
        trace: Its rows.
        global_pid: The process.
        names_n: Number of shown kernel names.
        name: Shape (kernels,), each kernel's name.
    """
    samples, listed = trace.tables.get("gpu_metrics"), trace.tables.get("gpu_metric_names")
    if samples is None or listed is None or not len(samples) or not len(listed):
        return ()
    links = gpu_links(trace.tables, global_pid, trace.device_ids)
    metrics = []
    for device, link in sorted(links.items()):
        series, unknown = _metric_series(samples, listed, link.gpu_id)
        if series or unknown:
            sums = _device_sums(trace, device, series, names_n, name)
            metrics.append(DeviceMetrics(device, link, sums, unknown))
    return tuple(metrics)


def _metric_series(
    samples: Table, listed: Table, gpu_id: int
) -> tuple[list[tuple[str, IntArray, IntArray]], tuple[tuple[str, int], ...]]:
    """Return name, ascending times and values of each metric in percent of one GPU.

    Beside them, name and number of samples of those whose unit is not known.
    """
    gpu_rows = listed.take((listed["type_id"] & _GPU_BITS) == gpu_id)
    series, unknown = [], []
    for type_id, metric_id, text in zip(
        gpu_rows["type_id"].tolist(), gpu_rows["metric_id"].tolist(), gpu_rows["text"], strict=True
    ):
        if text is None or (in_percent := is_percent(str(text))) is False:
            continue
        selected = (samples["type_id"] == type_id) & (samples["metric_id"] == metric_id)
        if in_percent is None:
            unknown += [(str(text), samples_n)] if (samples_n := int(selected.sum())) else []
            continue
        times, values = _sane(samples.take(selected))
        if times.size:
            series.append((str(text), times, values))
    return sorted(series, key=lambda metric: metric[0]), tuple(sorted(unknown))


def _sane(samples: Table) -> tuple[IntArray, IntArray]:
    """Return ascending times and values of those samples of one metric that are no damage."""
    at_ns, value = samples["time_ns"], samples["value"]
    sane = (at_ns > -_LARGEST_TIME_NS) & (at_ns < _LARGEST_TIME_NS)
    sane &= (value >= 0) & (value <= _LARGEST_VALUE)
    times, first = np.unique(at_ns[sane], return_index=True)
    return times, value[sane][first]


def _device_sums(
    trace: RankTrace,
    device: int,
    series: Sequence[tuple[str, IntArray, IntArray]],
    names_n: int,
    name: IntArray,
) -> tuple[MetricSums, ...]:
    kernels = trace.tables["kernels"]
    selected = np.flatnonzero(kernels["device_id"] == device)
    starts, ends, group = kernels["start_ns"][selected], kernels["end_ns"][selected], name[selected]
    span = _window(trace, device)
    if trace.windows_ns is not None:
        owner, starts, ends = clip_to_windows(starts, ends, trace.windows_ns)
        group = group[owner]
    # The whole window is one more name, which runs all the time.
    starts, ends = np.concatenate((starts, span[:, 0])), np.concatenate((ends, span[:, 1]))
    group = np.concatenate((group, np.full(len(span), names_n, dtype=np.int64)))
    sums, known = [], _Known()
    for metric, times, values in series:
        windows, (overlap_group, window, shared_ns) = known.overlaps(times, starts, ends, group)
        if not len(windows):
            continue
        lengths = windows[:, 1] - windows[:, 0]
        sums.append(
            MetricSums(
                metric=metric,
                period_ns=int(lengths.max()),
                samples_n=np.bincount(overlap_group, minlength=names_n + 1).astype(np.int64),
                sampled_ns=summed(overlap_group, lengths[window], names_n + 1),
                own_ns=summed(overlap_group, shared_ns, names_n + 1),
                weighted=weighted_sums(overlap_group, window, shared_ns, values, names_n + 1),
            )
        )
    return tuple(sums)


class _Known:
    """The overlaps of the last times asked for: all metrics of a GPU are sampled together."""

    def __init__(self) -> None:
        self._times: IntArray = np.empty(0, dtype=np.int64)
        self._windows: IntArray = np.empty((0, 2), dtype=np.int64)
        self._overlaps: tuple[IntArray, IntArray, IntArray] | None = None

    def overlaps(
        self, times: IntArray, starts: IntArray, ends: IntArray, group: IntArray
    ) -> tuple[IntArray, tuple[IntArray, IntArray, IntArray]]:
        if self._overlaps is None or not np.array_equal(times, self._times):
            self._times, self._windows = times, sample_windows(times)
            self._overlaps = overlaps(starts, ends, group, self._windows)
        return self._windows, self._overlaps


def _window(trace: RankTrace, device: int) -> npt.NDArray[np.int64]:
    if trace.windows_ns is not None:
        return trace.windows_ns
    ops = [trace.tables[name] for name in OP_TABLES if name in trace.tables]
    device_ops = [op.take(op["device_id"] == device) for op in ops]
    starts, ends = (
        np.concatenate([op[name] for op in device_ops]) for name in ("start_ns", "end_ns")
    )
    if not starts.size:
        return np.empty((0, 2), dtype=np.int64)
    return np.array([[starts.min(), ends.max()]], dtype=np.int64)
