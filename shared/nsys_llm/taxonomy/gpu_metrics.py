"""Which GPU metrics are in percent, detected from their names. Pure.

Since 2023 Nsight Systems writes the unit behind the name, as in `SMs Active [Throughput %]`.
Releases up to 2022.4 write the name alone; their user guide says which hardware counter each stands
for, and so its unit (section GPU Metrics, "Available metrics"; of 2022.4 in Debian's
nvidia-cuda-toolkit 11.8). Values of a real capture of 2022.4.2 agree.
"""

from __future__ import annotations

from typing import Final

_PERCENT_END: Final = "%]"
#: Of peak cycles, warps or throughput, in lower case: spelling changed between releases.
_IN_PERCENT: Final = frozenset(
    [
        "async compute in flight",
        "compute warps in flight",
        "dram read throughput",
        "dram write throughput",
        "gr active",
        "nvlink rx requests protocol data",
        "nvlink rx requests user data",
        "nvlink rx responses protocol data",
        "nvlink rx responses user data",
        "nvlink tx requests protocol data",
        "nvlink tx requests user data",
        "nvlink tx responses protocol data",
        "nvlink tx responses user data",
        "pcie rx throughput",
        "pcie tx throughput",
        "pixel warps in flight",
        "sm active",
        "sm issue",
        "sync compute in flight",
        "tensor active",
        "unallocated warps in active sms",
        "vertex/tess/geometry warps in flight",
    ]
)


def is_percent(metric: str) -> bool:
    """Tell whether a metric is in percent; one whose unit nothing tells is not."""
    return metric.endswith(_PERCENT_END) or metric.lower() in _IN_PERCENT
