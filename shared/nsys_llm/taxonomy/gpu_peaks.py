"""What a GPU computes at most, by its exact name; data sheets are in `data/gpu_peaks.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from nsys_llm.taxonomy.data_files import data_file

_TERA: Final = 1e12


@dataclass(frozen=True)
class GpuPeak:
    """Dense peaks of one GPU, FLOP/s by type of the operands, and where they are from."""

    flops_s: Mapping[str, float]
    source: str


def gpu_peak(name: str | None) -> GpuPeak | None:
    """Return the peaks of a GPU; None for a name that is not listed, however alike."""
    return None if name is None else _peaks().get(name)


@cache
def _peaks() -> Mapping[str, GpuPeak]:
    return {
        row["name"]: GpuPeak(
            {kind: value * _TERA for kind, value in row["tflops"].items()},
            f"{row['source']}, {row['date']}",
        )
        for row in data_file("gpu_peaks")["gpus"]
    }
