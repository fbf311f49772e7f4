"""The physical GPUs behind a process's devices, as far as a profile shows, and their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray, clip_to_windows
from nsys_llm.profile.tables import Table, pid_of
from nsys_llm.taxonomy.gpus import is_percent
from nsys_llm.trace.rank_trace import RankTrace

#: The report lists the process's devices with their GPUs (exports since 2026.1).
BY_TABLE: Final = "table"
#: The machine has one GPU, so it is that.
ONLY_GPU: Final = "only_gpu"
#: CUDA's own order of the machine's GPUs: wrong where CUDA_VISIBLE_DEVICES renumbers them.
BY_ORDER: Final = "cuda_order"
#: The low bits of a metric's type id are the number of its GPU.
_GPU_BITS: Final = 0xFF
#: Values of a metric in percent; others are damage. A few samples do exceed 100.
_LARGEST_VALUE: Final = 1000
_LARGEST_TIME_NS: Final = 1 << 53


@dataclass(frozen=True)
class GpuLink:
    """A physical GPU.

    Attributes:
        source: How it is known: BY_TABLE, ONLY_GPU or BY_ORDER.
    """

    gpu_id: int
    source: str


def gpu_links(
    tables: Mapping[str, Table], global_pid: int, device_ids: Sequence[int]
) -> dict[int, GpuLink]:
    """Return the GPU behind each CUDA device of a process; devices not known are left out.

    Args:
        tables: `gpus` with gpu_id and cuda_id, `cuda_devices` with gpu_id, cuda_id and pid.
    """
    gpus, listed = tables.get("gpus"), tables.get("cuda_devices")
    known: dict[int, GpuLink] = {}
    if gpus is not None and len(gpus):
        if len(set(gpus["gpu_id"].tolist())) == 1:
            only = GpuLink(int(gpus["gpu_id"][0]), ONLY_GPU)
            known = dict.fromkeys(device_ids, only)
        else:
            pairs = zip(gpus["cuda_id"].tolist(), gpus["gpu_id"].tolist(), strict=True)
            known = {cuda: GpuLink(gpu, BY_ORDER) for cuda, gpu in pairs if cuda != NULL_INT}
    if listed is not None:
        process_devices = listed.take(listed["pid"] == (pid_of(global_pid) or NULL_INT))
        pairs = zip(
            process_devices["cuda_id"].tolist(), process_devices["gpu_id"].tolist(), strict=True
        )
        known |= {cuda: GpuLink(gpu, BY_TABLE) for cuda, gpu in pairs if gpu != NULL_INT}
    return {device: known[device] for device in device_ids if device in known}


def gpu_value(tables: Mapping[str, Table], link: GpuLink | None, column: str) -> int | None:
    """Return a column of `gpus` for a GPU; None where it is not known.

    Where the GPU is not known, it is that of all GPUs if they are alike.
    """
    gpus = tables.get("gpus")
    if gpus is None:
        return None
    values = dict(zip(gpus["gpu_id"].tolist(), gpus[column].tolist(), strict=True))
    if link is not None and link.source != BY_ORDER and link.gpu_id in values:
        values = {link.gpu_id: values[link.gpu_id]}
    alike = {*values.values()}
    # NULL is far below zero, and zero is what a driver says that does not know.
    return max(alike) if len(alike) == 1 and max(alike) > 0 else None


@dataclass(frozen=True)
class MetricSums:
    """One metric on one device, by kernel name; arrays of shape (names + 1,), the last for all.

    The last row speaks of the whole window, busy or not.

    Attributes:
        samples_n: Samples in whose time the kernel ran.
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
    """The metrics of one device of one rank."""

    device_id: int
    link: GpuLink
    metrics: tuple[MetricSums, ...]


def map_gpu_metrics(
    trace: RankTrace, global_pid: int, names_n: int, name: IntArray
) -> tuple[DeviceMetrics, ...]:
    """Reduce the samples of the GPUs behind a rank's devices.

    Args:
        name: Shape (kernels,), each kernel's name.
    """
    samples, listed = trace.tables.get("gpu_metrics"), trace.tables.get("gpu_metric_names")
    if samples is None or listed is None or not len(samples) or not len(listed):
        return ()
    links = gpu_links(trace.tables, global_pid, trace.device_ids)
    metrics = []
    for device, link in sorted(links.items()):
        series = _metric_series(samples, listed, link.gpu_id)
        if series:
            sums = _device_sums(trace, device, series, names_n, name)
            metrics.append(DeviceMetrics(device, link, sums))
    return tuple(metrics)


def _metric_series(
    samples: Table, listed: Table, gpu_id: int
) -> list[tuple[str, IntArray, IntArray]]:
    """Return name, ascending times and values of each metric in percent of one GPU."""
    gpu_rows = listed.take((listed["type_id"] & _GPU_BITS) == gpu_id)
    series = []
    for type_id, metric_id, text in zip(
        gpu_rows["type_id"].tolist(), gpu_rows["metric_id"].tolist(), gpu_rows["text"], strict=True
    ):
        if text is None or not is_percent(str(text)):
            continue
        selected = (samples["type_id"] == type_id) & (samples["metric_id"] == metric_id)
        times, values = _sane(samples.take(selected))
        if times.size:
            series.append((str(text), times, values))
    return sorted(series, key=lambda metric: metric[0])


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
    span = trace.device_windows(device)
    if trace.windows_ns is not None:
        owner, starts, ends = clip_to_windows(starts, ends, trace.windows_ns)
        group = group[owner]
    # The whole window is one more name, which runs all the time.
    starts, ends = np.concatenate((starts, span[:, 0])), np.concatenate((ends, span[:, 1]))
    group = np.concatenate((group, np.full(len(span), names_n, dtype=np.int64)))
    sums = []
    # All metrics of a GPU are sampled together.
    known: dict[bytes, tuple[IntArray, tuple[IntArray, IntArray, IntArray]]] = {}
    for metric, times, values in series:
        key = times.tobytes()
        if key not in known:
            windows = sample_windows(times)
            known[key] = windows, overlaps(starts, ends, group, windows)
        windows, (overlap_group, window, shared_ns) = known[key]
        if not len(windows):
            continue
        lengths = windows[:, 1] - windows[:, 0]
        weighted = values[window] * shared_ns  # no sum outgrows 64 bits
        sums.append(
            MetricSums(
                metric=metric,
                period_ns=int(lengths.max()),
                samples_n=np.bincount(overlap_group, minlength=names_n + 1).astype(np.int64),
                sampled_ns=summed(overlap_group, lengths[window], names_n + 1),
                own_ns=summed(overlap_group, shared_ns, names_n + 1),
                weighted=summed(overlap_group, weighted, names_n + 1),
            )
        )
    return tuple(sums)


def sample_windows(at_ns: IntArray) -> IntArray:
    """Return the time that each sample speaks of: from one sampling period before it up to it.

    The period is the median distance. After a pause, where samples were lost, a sample speaks of
    one period as well; the first one has none before it, and gets one period, too.

    Args:
        at_ns: Shape (n,), ascending, each once.

    Returns:
        Shape (n, 2), sorted and disjoint; shape (0, 2) for fewer than two samples, which do not
        tell a period.
    """
    if at_ns.size < 2:
        return np.empty((0, 2), dtype=np.int64)
    distance = np.diff(at_ns)
    period = int(np.sort(distance)[distance.size // 2])
    starts = at_ns - np.concatenate(([period], np.minimum(distance, period)))
    return np.column_stack((starts, at_ns))


def overlaps(
    start_ns: IntArray, end_ns: IntArray, group: IntArray, windows: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return how long each group ran in each window.

    Args:
        start_ns: Shape (n,), intervals in any order; those that overlap count each.
        group: Shape (n,), codes from 0.
        windows: Shape (m, 2), sorted and disjoint.

    Returns:
        Group, window and ns of each pair that meets, ordered by group, then window.
    """
    owner, starts, ends = clip_to_windows(start_ns, end_ns, windows)
    if owner.size == 0:
        return owner, owner, owner
    window = np.searchsorted(windows[:, 1], starts, side="right")
    key = group[owner] * len(windows) + window
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    shared_ns = np.add.reduceat((ends - starts)[order], first)
    real = shared_ns > 0
    return ((key[first] // len(windows))[real], (key[first] % len(windows))[real], shared_ns[real])
