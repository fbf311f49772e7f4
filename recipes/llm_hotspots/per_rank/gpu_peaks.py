"""How fast the memory of a rank's GPUs can be, as far as the profile shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nsys_llm.profile.tables import Table, pid_of


def peak_bandwidths(
    tables: Mapping[str, Table], global_pid: int, device_ids: Iterable[int]
) -> dict[int, int | None]:
    """Return the peak memory bandwidth of each device, in bytes per second; None: not known.

    Newer exports (schema 3.24 on) say which GPU a process's device is. Older ones do not, and a
    process may number the GPUs in its own way: then the peak is known where all GPUs share it.

    Args:
        tables: With `gpus` and `cuda_devices`, as the reader gives them.
        global_pid: The process.
        device_ids: CUDA devices as the process numbers them.
    """
    gpus = tables["gpus"]
    peaks = dict(zip(gpus["gpu_id"].tolist(), gpus["bandwidth_bytes_s"].tolist(), strict=True))
    common = _known(next(iter(peaks.values()))) if len(set(peaks.values())) == 1 else None
    devices = tables["cuda_devices"]
    selected = devices.take(devices["pid"] == (pid_of(global_pid) or -1))
    gpu_of = dict(zip(selected["device_id"].tolist(), selected["gpu_id"].tolist(), strict=True))
    return {
        device: _known(peaks[gpu_of[device]]) if gpu_of.get(device) in peaks else common
        for device in device_ids
    }


def _known(bytes_per_second: int) -> int | None:
    # NULL is far below zero, and zero is what a driver says that does not know.
    return bytes_per_second if bytes_per_second > 0 else None
