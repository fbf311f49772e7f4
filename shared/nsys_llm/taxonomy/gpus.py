"""What a GPU computes and copies at most, by its exact name (`data/gpu_peaks.json`); its metrics.

Of a slice of one (MIG) it is the part that the slice has of the multiprocessors, and not known
where these are not: never what the whole GPU does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from nsys_llm.taxonomy.data_files import data_file

_TERA: Final = 1e12
_GIGA: Final = 1e9
#: What stands between the name of a GPU and the profile of a slice: "NVIDIA H200 MIG 1g.18gb".
_SLICE: Final = " MIG "
#: Part of the whole GPU's bandwidth from which a slice is said to have that of the whole.
_WHOLE: Final = 0.9
#: GB/s of 16 lanes of PCIe in one direction, without its encoding, of the third generation.
_PCIE_3_GB_S: Final = 16 * 8 * 128 / 130 / 8
#: What pinned copies reach of it: 24.0 and 25.7 of 31.5 GB/s on an A100, one each way.
_PINNED: Final = 0.77


@dataclass(frozen=True)
class GpuPeak:
    """What one GPU does at most, and where that is from.

    Attributes:
        flops_s: Dense peaks, FLOP/s by type of the operands.
        pinned_gb_s: What copies between pinned memory and it reach; None where it has no PCIe, and
            of a slice, which shares that.
        sms_n: Its multiprocessors; None where it cannot be cut into slices.
        bytes_s: Bandwidth of its memory, likewise.
    """

    flops_s: Mapping[str, float]
    source: str
    pinned_gb_s: float | None
    sms_n: int | None = None
    bytes_s: float | None = None


def gpu_peak(name: str | None, sms_n: int | None = None) -> GpuPeak | None:
    """Return the peaks of a GPU or slice; None for a name that is not listed, however alike.

    Args:
        sms_n: Its multiprocessors, as the profile has them; None where it does not.
    """
    whole, _, profile = (name or "").partition(_SLICE)
    listed = _peaks().get(whole)
    if listed is None or not is_slice(name, sms_n):
        return listed
    if sms_n is None or listed.sms_n is None or (profile and sms_n >= listed.sms_n):
        return None
    part = sms_n / listed.sms_n
    return GpuPeak(
        {kind: value * part for kind, value in listed.flops_s.items()},
        f"{listed.source}; {sms_n} of {listed.sms_n} SMs",
        None,
    )


def is_slice(name: str | None, sms_n: int | None) -> bool:
    """Return whether it is a slice of a GPU, by its name or as it has fewer multiprocessors."""
    whole, found, _ = (name or "").partition(_SLICE)
    listed = _peaks().get(whole)
    most_n = None if listed is None else listed.sms_n
    return bool(found) or (sms_n is not None and most_n is not None and sms_n < most_n)


def recorded_bandwidth(name: str | None, sms_n: int | None, bytes_s: int | None) -> int | None:
    """Return the bandwidth in a profile; None where a slice would have that of the whole GPU."""
    whole, _, _ = (name or "").partition(_SLICE)
    listed = _peaks().get(whole)
    if bytes_s is None or listed is None or listed.bytes_s is None or not is_slice(name, sms_n):
        return bytes_s
    return bytes_s if bytes_s < _WHOLE * listed.bytes_s else None


@cache
def _peaks() -> Mapping[str, GpuPeak]:
    return {
        row["name"]: GpuPeak(
            {kind: value * _TERA for kind, value in row["tflops"].items()},
            f"{row['source']}, {row['date']}",
            _PINNED * _PCIE_3_GB_S * 2 ** (row["pcie"] - 3) if "pcie" in row else None,
            row.get("sms"),
            row["gb_s"] * _GIGA if "gb_s" in row else None,
        )
        for row in data_file("gpu_peaks")["gpus"]
    }


#: Of peak cycles, warps or throughput; spelling changed between releases.
_IN_PERCENT: Final = re.compile(
    r"(?:a?sync compute|(?:compute|pixel|vertex/tess/geometry) warps) in flight"
    r"|(?:dram (?:read|write)|pcie [rt]x) throughput|(?:gr|sm|tensor) active|sm issue"
    r"|nvlink [rt]x (?:requests|responses) (?:protocol|user) data|unallocated warps in active sms",
    re.IGNORECASE,
)


def is_percent(metric: str) -> bool:
    """Tell whether a metric is in percent; one whose unit nothing tells is not."""
    return metric.endswith("%]") or _IN_PERCENT.fullmatch(metric) is not None
