"""What a GPU computes and copies at most, by its exact name, as `data/gpu_peaks.json` has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from nsys_llm.taxonomy.data_files import data_file

_TERA: Final = 1e12
#: GB/s of 16 lanes of PCIe in one direction, without its encoding, of the third generation.
_PCIE_3_GB_S: Final = 16 * 8 * 128 / 130 / 8
#: What pinned copies reach of it: 24.0 and 25.7 of 31.5 GB/s on an A100, one each way.
_PINNED: Final = 0.77


@dataclass(frozen=True)
class GpuPeak:
    """What one GPU does at most, and where that is from.

    Attributes:
        flops_s: Dense peaks, FLOP/s by type of the operands.
        pinned_gb_s: What copies between pinned memory and it reach; None where it has no PCIe.
    """

    flops_s: Mapping[str, float]
    source: str
    pinned_gb_s: float | None


def gpu_peak(name: str | None) -> GpuPeak | None:
    """Return the peaks of a GPU; None for a name that is not listed, however alike."""
    return None if name is None else _peaks().get(name)


@cache
def _peaks() -> Mapping[str, GpuPeak]:
    return {
        row["name"]: GpuPeak(
            {kind: value * _TERA for kind, value in row["tflops"].items()},
            f"{row['source']}, {row['date']}",
            _PINNED * _PCIE_3_GB_S * 2 ** (row["pcie"] - 3) if "pcie" in row else None,
        )
        for row in data_file("gpu_peaks")["gpus"]
    }
