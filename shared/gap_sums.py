"""Adds the gaps of one device up: by cause and length, in blocks that stay small."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.gaps import Gaps
from nsys_llm.host_line import HostLine
from nsys_llm.idle_causes import CAUSE_NAMES
from nsys_llm.idle_split import situate, split_gaps
from nsys_llm.intervals import IntArray
from nsys_llm.time_bins import log_edges

__all__ = ["BUCKETS", "BUCKET_EDGES_NS", "LENGTH_EDGES_NS", "GapSums", "sum_gaps"]

#: Lengths of gaps (the peer survey's buckets); an edge belongs to the bucket above it.
BUCKET_EDGES_NS: Final = (5_000, 20_000, 100_000, 1_000_000, 10_000_000)
BUCKETS: Final = ("<5 us", "5-20 us", "20-100 us", "100 us-1 ms", "1-10 ms", ">=10 ms")

#: Four bins to an octave, up to the 104 days of `nsys_llm.rank_trace`.
LENGTH_EDGES_NS: Final = log_edges(1 << 53)

_CAUSES_N: Final = len(CAUSE_NAMES)
# So many gaps and all causes stay in the processor's cache (7 MB).
_BLOCK: Final = 1 << 16


@dataclass(frozen=True)
class GapSums:
    """Sums over the gaps of one device; all arrays int64.

    Attributes:
        gaps_n: Shape (causes, buckets), gaps named after a cause.
        time_ns: Likewise, time of a cause in all gaps.
        certain_ns: Likewise, the part for which the trace shows the cause itself.
        lengths_n: Shape (causes, bins of `LENGTH_EDGES_NS`), gaps named after a cause.
        lengths_ns: Likewise, their lengths.
        named: Shape (gaps,), the cause that each gap is named after; empty in a partial.
    """

    gaps_n: IntArray
    time_ns: IntArray
    certain_ns: IntArray
    lengths_n: IntArray
    lengths_ns: IntArray
    named: npt.NDArray[np.int8]

    def without_names(self) -> GapSums:
        """Return the sums alone, whose size does not grow with the number of gaps."""
        return replace(self, named=self.named[:0].copy())


def sum_gaps(gaps: Gaps, launch_row: IntArray, host: HostLine) -> GapSums:
    """Split all gaps of a device and add their parts up."""
    buckets_n, bins_n = len(BUCKETS), len(LENGTH_EDGES_NS) - 1
    time_ns = np.zeros((_CAUSES_N, buckets_n), dtype=np.int64)
    certain_ns = np.zeros_like(time_ns)
    named = np.empty(len(gaps), dtype=np.int8)
    bucket_of = np.empty(len(gaps), dtype=np.int8)
    for first in range(0, len(gaps), _BLOCK):
        block = slice(first, first + _BLOCK)
        some = gaps.take(block)
        split = split_gaps(some, situate(some, launch_row, host), host)
        bucket = np.searchsorted(BUCKET_EDGES_NS, some.end_ns - some.start_ns, side="right")
        named[block], bucket_of[block] = split.time_ns.argmax(axis=0), bucket
        _add(time_ns, split.time_ns, bucket)
        _add(certain_ns, split.certain_ns, bucket)
    length = gaps.end_ns - gaps.start_ns
    code = named.astype(np.int64)
    in_bin = code * bins_n + np.searchsorted(LENGTH_EDGES_NS, length, side="right") - 1
    counts = np.bincount(code * buckets_n + bucket_of, minlength=_CAUSES_N * buckets_n)
    return GapSums(
        gaps_n=counts.reshape(time_ns.shape).astype(np.int64),
        time_ns=time_ns,
        certain_ns=certain_ns,
        lengths_n=np.bincount(in_bin, minlength=_CAUSES_N * bins_n).reshape(_CAUSES_N, bins_n),
        lengths_ns=_exact(in_bin, length, _CAUSES_N * bins_n).reshape(_CAUSES_N, bins_n),
        named=named,
    )


def _add(sums: IntArray, parts: IntArray, bucket: IntArray) -> None:
    for code in np.flatnonzero(parts.any(axis=1)).tolist():
        sums[code] += _exact(bucket, parts[code], len(BUCKETS))


def _exact(code: IntArray, value: IntArray, codes_n: int) -> IntArray:
    """Add integers up by code, 3 times as fast as `summed`.

    A double holds each sum exactly: all gaps of a device together are no longer than its capture,
    and that is below 2^53 ns.
    """
    return np.bincount(code, weights=value, minlength=codes_n).astype(np.int64)
