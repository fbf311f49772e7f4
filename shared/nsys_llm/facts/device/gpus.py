"""Which physical GPU is behind a process's CUDA device, as far as a profile shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table, pid_of

#: The report lists the process's devices with their GPUs (exports since 2026.1).
BY_TABLE: Final = "table"
#: The machine has one GPU, so it is that.
ONLY_GPU: Final = "only_gpu"
#: CUDA's own order of the machine's GPUs: wrong where CUDA_VISIBLE_DEVICES renumbers them.
BY_ORDER: Final = "cuda_order"


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
