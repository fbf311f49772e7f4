"""Idle time of devices: of one rank, or of many. Integers and strings, which merge exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nsys_llm.capture.unrecorded import LostWork
from nsys_llm.facts.device.gap_sums import GapSums
from nsys_llm.facts.idle.gap_rows import GapRow
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import Spread
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.host_part import HostPart
from nsys_llm.trace.identity import RankKey

#: Longer gaps are listed one by one. What a host takes to launch one operation is far below.
MICRO_GAP_NS: Final = 100_000


@dataclass(frozen=True)
class RankPatterns:
    """Patterns of one rank, those with most time first.

    Attributes:
        pairs: Names of the operations before and after.
        gaps_n: Shape (patterns,).
        total_ns: Likewise, lengths of the gaps together.
        cause_ns: Shape (patterns, causes), the same by the cause that a gap is named after.
        others_n: Short gaps of patterns that were left out.
    """

    pairs: tuple[tuple[str, str], ...]
    gaps_n: IntArray
    total_ns: IntArray
    cause_ns: IntArray
    others_n: int
    others_ns: int


@dataclass(frozen=True)
class IdleTimes:
    """The window of one device in parts; all arrays of shape (parts,), int64.

    Attributes:
        start_ns: Of the part; the report's own clock.
        window_ns: The part of it inside the windows.
        gap_ns: What of that no operation covers.
        overhead_ns: What of that the profiler took, or may be work that left no row.
    """

    start_ns: IntArray
    end_ns: IntArray
    window_ns: IntArray
    gap_ns: IntArray
    overhead_ns: IntArray


@dataclass(frozen=True)
class DeviceIdle:
    """One device of one rank. See the table `devices` of the manifest.

    Attributes:
        early_ns: Idle time before operations that were launched before the capture began.
        transfers_n: Kernels that send to or receive from single peers, as stages do.
        lost_ns: Time in gaps in which work may have run that left no row, without overhead_ns.
        sums: Gaps by cause; None until they are added up.
        lengths: Of its gaps, one group.
        times: Idle time over time.
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
    times: IdleTimes | None
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


@dataclass(frozen=True)
class CopyCalls:
    """Calls of a rank that copy or fill, see `nsys_llm.capture.unrecorded.LostWork`."""

    copy_calls_n: int
    copies_seen_n: int
    copies_cut_n: int

    @classmethod
    def of(cls, work: LostWork) -> CopyCalls:
        """Take them from what a process lacks."""
        return cls(work.copy_calls_n, work.copies_seen_n, work.copies_cut_n)


@dataclass(frozen=True)
class RankIdle:
    """One rank: its devices, sorted; its longest gaps; its patterns; its copies."""

    devices: tuple[DeviceIdle, ...]
    gaps: tuple[GapRow, ...]
    patterns: RankPatterns
    copies: CopyCalls
    host: HostPart | None = None


@dataclass(frozen=True)
class IdleFacts:
    """Many ranks.

    Attributes:
        pattern_lengths: How often a gap of each pattern had which length, over all ranks.
    """

    ranks: Mapping[RankKey, RankIdle] = field(default_factory=dict)
    pattern_lengths: ByKey = field(default_factory=ByKey)
