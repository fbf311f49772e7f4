"""What a demo set holds for the recipes to find."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nsys_llm.testing import demo
from nsys_llm.testing.demo import SLOWNESS
from nsys_llm.testing.demo_workload import (
    BATCH_1,
    BATCH_16,
    JITTERY_KERNEL,
    Workload,
    forward,
)
from nsys_llm.testing.trace_bulk import base_name


@dataclass(frozen=True)
class Planted:
    """What is planted. Kernel names are base names.

    Attributes:
        slow_rank: Comes last to the collectives, so that the others wait.
        mixed_kernel: Runs in a small and a large configuration; neither has a tail of its own.
        jittery_kernel: Has rare long launches within one configuration.
        longer_kernel: As many launches after as before, each `longer_ratio` times as long.
        removed_gemms: Matrix products that only the baseline has.
        added_gemms: Matrix products that only the later run has.
        removed_attention: Attention kernels that only the baseline has.
        added_attention: Attention kernels that only the later run has.
        device_copies: Device-to-device copies per rank, before and after.
        memsets: Fills per rank, before and after.
    """

    slow_rank: int
    mixed_kernel: str
    jittery_kernel: str
    longer_kernel: str
    longer_ratio: float
    removed_gemms: frozenset[str]
    added_gemms: frozenset[str]
    removed_attention: frozenset[str]
    added_attention: frozenset[str]
    device_copies: tuple[int, int]
    memsets: tuple[int, int]


@dataclass(frozen=True)
class PlantedDemo:
    """A demo set: one export per rank of each run, and what is in it."""

    baseline: tuple[Path, ...]
    after: tuple[Path, ...]
    planted: Planted


def write_demo(folder: Path, *, scale: float = 1.0) -> PlantedDemo:
    """Write a demo set; see `nsys_llm.testing.demo.write_demo`."""
    written = demo.write_demo(folder, scale=scale)
    return PlantedDemo(written.baseline, written.after, PLANTED)


def _planted() -> Planted:
    before, after = _kernel_names(BATCH_1), _kernel_names(BATCH_16)
    products = {name for name in before | after if name.startswith("nvjet")}
    return Planted(
        slow_rank=int(np.argmax(SLOWNESS)),
        mixed_kernel="act_and_mul_kernel",
        jittery_kernel=base_name(JITTERY_KERNEL),
        longer_kernel="reshape_and_cache_flash_kernel",
        longer_ratio=BATCH_16.cache_write_pct / BATCH_1.cache_write_pct,
        removed_gemms=frozenset((before - after) & products),
        added_gemms=frozenset((after - before) & products),
        removed_attention=frozenset(before - after - products),
        added_attention=frozenset(after - before - products),
        device_copies=(BATCH_1.device_copies[0], BATCH_16.device_copies[0]),
        memsets=(BATCH_1.memsets, BATCH_16.memsets),
    )


def _kernel_names(workload: Workload) -> frozenset[str]:
    kinds = [kind for prefill in (True, False) for kind in forward(workload, prefill=prefill)]
    return frozenset(base_name(kind.name) for kind in kinds)


PLANTED = _planted()
