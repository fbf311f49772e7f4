"""Adds the gaps of one device up: by cause and length, in blocks that stay small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.concurrently import concurrently
from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.facts.device.idle_split import situate, split_gaps
from nsys_llm.numeric.gaps import Gaps, Positions
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES

#: Lengths of gaps (the peer survey's buckets); an edge belongs to the bucket above it.
BUCKET_EDGES_NS: Final = (5_000, 20_000, 100_000, 1_000_000, 10_000_000)
BUCKETS: Final = ("<5 us", "5-20 us", "20-100 us", "100 us-1 ms", "1-10 ms", ">=10 ms")

_CAUSES_N: Final = len(CAUSE_NAMES)
# So many gaps and all causes stay in the processor's cache (2 MB).
_BLOCK: Final = 1 << 14


@dataclass(frozen=True)
class GapSums:
    """Sums over the gaps of one device; all arrays int64.

    Attributes:
        gaps_n: Shape (causes, buckets), gaps named after a cause.
        time_ns: Likewise, time of a cause in all gaps.
        certain_ns: Likewise, the part for which the trace shows the cause itself.
        named: Shape (gaps,), the cause that each gap is named after; empty where it is sent.
    """

    gaps_n: IntArray
    time_ns: IntArray
    certain_ns: IntArray
    named: npt.NDArray[np.int8]

    def without_names(self) -> GapSums:
        """Return the sums alone, whose size does not grow with the number of gaps."""
        return replace(self, named=self.named[:0].copy())


def sum_gaps(gaps: Gaps, launch_row: Positions, host: HostTimeline) -> GapSums:
    """Split all gaps of a device and add their parts up."""
    named = np.empty(len(gaps), dtype=np.int8)
    blocks = [slice(first, first + _BLOCK) for first in range(0, len(gaps), _BLOCK)]

    def sums(some: Sequence[slice]) -> tuple[IntArray, ...]:
        """Name the gaps of some blocks, and add them up: all but the last field of the result."""
        gaps_n, time_ns, certain_ns = _nothing()
        for block in some:
            selected = gaps.take(block)
            split = split_gaps(selected, situate(selected, launch_row, host), host)
            length, cause = selected.end_ns - selected.start_ns, split.time_ns.argmax(axis=0)
            named[block] = cause
            bucket = np.searchsorted(BUCKET_EDGES_NS, length, side="right")
            _add(time_ns, split.time_ns, bucket)
            _add(certain_ns, split.certain_ns, bucket)
            in_bucket = cause * len(BUCKETS) + bucket
            gaps_n += np.bincount(in_bucket, minlength=gaps_n.size).reshape(gaps_n.shape)
        return gaps_n, time_ns, certain_ns

    halves = concurrently(len(gaps), lambda: sums(blocks[::2]), lambda: sums(blocks[1::2]))
    gaps_n, time_ns, certain_ns = (left + right for left, right in zip(*halves, strict=True))
    return GapSums(gaps_n, time_ns, certain_ns, named)


def _nothing() -> tuple[IntArray, IntArray, IntArray]:
    """Return the sums over no gaps: all but the last field of the result."""
    shape = (_CAUSES_N, len(BUCKETS))
    return np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)


def _add(sums: IntArray, parts: IntArray, bucket: IntArray) -> None:
    for code in np.flatnonzero(parts.any(axis=1)).tolist():
        sums[code] += _exact(bucket, parts[code], len(BUCKETS))


def _exact(code: IntArray, value: IntArray, codes_n: int) -> IntArray:
    """Add integers up by code, 3 times as fast as `summed`.

    A double holds each sum exactly: all gaps of a device together are no longer than its capture,
    and that is below 2^53 ns.
    """
    return np.bincount(code, weights=value, minlength=codes_n).astype(np.int64)
