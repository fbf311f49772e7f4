"""The devices of one rank: their windows, and how much of them is idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.facts.device.idle_split import GapSums
from nsys_llm.numeric.distributions import Spread, ValueCounts
from nsys_llm.numeric.intervals import (
    IntArray,
    bounds,
    intersect_intervals,
    total_length_ns,
)
from nsys_llm.taxonomy.communication import SEND_RECV, is_communication, operation_of
from nsys_llm.taxonomy.idle_causes import NOT_RECORDED
from nsys_llm.trace.device_ops import DeviceOps, OpNames


@dataclass(frozen=True)
class DeviceIdle:
    """One device of one rank. See the table `devices` of the manifest.

    Attributes:
        early_ns: Idle time before operations that were launched before the capture began.
        transfers_n: Kernels that send to or receive from single peers, as stages do.
        lost_ns: Time in gaps in which work may have run that left no row, without overhead_ns.
        sums: Gaps by cause; None until they are added up.
        lengths: Of its gaps, one group.
        ranges: Of a host's cause and a bucket of lengths, the NVTX range with most time, and it.
    """

    device_id: int
    windowed_by: str
    window_start_ns: int | None
    window_end_ns: int | None
    window_ns: int
    ops_n: int
    transfers_n: int
    gap_ns: int
    overhead_ns: int
    lost_ns: int
    early_ns: int
    kernel_busy_ns: int
    sums: GapSums | None
    lengths: Spread
    ranges: Mapping[tuple[int, int], tuple[str, int]] = field(default_factory=dict)

    @property
    def busy_ns(self) -> int:
        """Time of its window with any operation."""
        return self.window_ns - self.gap_ns

    @property
    def copy_only_ns(self) -> int:
        """The part of it without a kernel or whole graph."""
        return self.busy_ns - self.kernel_busy_ns

    @property
    def idle_ns(self) -> int:
        """What neither operations nor the profiler took of its window, and is recorded."""
        return self.gap_ns - self.overhead_ns - self.lost_ns


def map_device(ops: DeviceOps, names: OpNames, host: HostTimeline) -> DeviceIdle:
    """Reduce one device to all but its `sums`."""
    windows, spans = ops.windows_ns, ops.gaps.spans
    start_ns, end_ns = bounds(windows)
    overhead, lost = (
        intersect_intervals(some, spans) for some in (host.profiler, host.away[NOT_RECORDED])
    )
    length = spans[:, 1] - spans[:, 0]
    counts = ValueCounts.from_values(np.broadcast_to(np.int64(0), length.shape), length)
    return DeviceIdle(
        device_id=ops.device_id,
        windowed_by=ops.window_source,
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        window_ns=total_length_ns(windows),
        ops_n=ops.start_ns.size,
        transfers_n=_transfers_n(ops, names),
        gap_ns=total_length_ns(spans),
        overhead_ns=total_length_ns(overhead),
        lost_ns=total_length_ns(lost),
        early_ns=_early_ns(ops, spans, overhead),
        kernel_busy_ns=ops.computing_ns,
        sums=None,
        lengths=counts.spread(1),
    )


def _early_ns(ops: DeviceOps, spans: IntArray, overhead: IntArray) -> int:
    """Return the idle time before operations that were launched before the capture began."""
    after = ops.gaps.after
    early = spans[(after >= 0) & ops.early[after]] if ops.early.any() else spans[:0]
    return total_length_ns(early) - total_length_ns(intersect_intervals(overhead, early))


def _transfers_n(ops: DeviceOps, names: OpNames) -> int:
    """Return how many kernels of a device send or receive."""
    n = np.bincount(ops.name, minlength=len(names.texts))
    return sum(
        int(n[at])
        for at in np.flatnonzero((n > 0) & names.computing).tolist()
        if is_communication(names.texts[at]) and operation_of(names.texts[at]) == SEND_RECV
    )
