"""How close kernels that stream weights come to the GPU's memory bandwidth.

One kernel at a time is asked after, by --weights: bytes a launch reads over its mean duration,
against the peak that the report names. It is an estimate from below: activations and results move
too, and from above where the L2 cache holds the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from nsys_llm.core.patterns import parse_pattern
from nsys_llm.facts.operations.memops import RankMemops
from nsys_llm.manifest.weights import Weight
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.grouping import summed
from nsys_llm.report.columns import Columns

from .memops import BYTES_PER_GB

#: Above: the hardware limit is near, and smaller weights or larger batches are what is left. Below:
#: a better kernel can gain. Source: the profiling guide that this recipe follows (GEMV in decode).
LITTLE_HEADROOM_PCT: Final = 80.0
ROOM_PCT: Final = 70.0

#: What a matrix-vector product usually reaches, by the size of its weights; same source.
_LARGE_BYTES: Final = 20_000_000
_SMALL_BYTES: Final = 5_000_000
_LARGE_PCT: Final = (85.0, 90.0)
_SMALL_PCT: Final = (60.0, 70.0)


def bandwidth_columns(
    weights: Sequence[Weight], kernels: ByKey, memops: Iterable[RankMemops]
) -> Columns:
    """Return the table bandwidth; one row a pattern, in the order of the file.

    Args:
        kernels: How often a launch of each took how long, over all ranks.
    """
    n, fits = len(weights), [parse_pattern(pattern).matches for pattern, _ in weights]
    # No launch counts twice: a kernel is of the first pattern that fits it.
    first = [next((at for at in range(n) if fits[at](name)), n) for name in kernels.keys]
    owner, times = np.array(first, dtype=np.int64), kernels.counts.moments(len(kernels.keys))
    launches_n, total_ns = (summed(owner, of, n + 1)[:-1] for of in (times.n, times.total))
    longest = [
        max(np.flatnonzero(owner == at).tolist(), key=times.total.__getitem__, default=None)
        for at in range(n)
    ]
    none = launches_n == 0
    size_bytes = np.array([size for _, size in weights], dtype=np.int64)
    # NaN where devices differ, or a report has none.
    peaks = {peak for memop in memops for peak in memop.peaks.values()}
    peak = peaks.pop() if len(peaks) == 1 else None
    peak_gb_s = np.nan if peak is None else peak / BYTES_PER_GB
    mean_ns = np.where(none, np.nan, total_ns / np.where(none, 1, launches_n))
    # Bytes a nanosecond are gigabytes a second.
    rate = np.where(total_ns > 0, size_bytes / np.where(total_ns > 0, mean_ns, 1.0), np.nan)
    efficiency_pct = 100.0 * rate / peak_gb_s
    return {
        "pattern": [pattern for pattern, _ in weights],
        "size_bytes": size_bytes,
        "example": [None if row is None else kernels.keys[row] for row in longest],
        "launches_n": launches_n,
        "total_ns": total_ns,
        "mean_ns": mean_ns,
        "rate_gb_s": rate,
        "peak_gb_s": np.full(n, peak_gb_s),
        "efficiency_pct": efficiency_pct,
        "judgement": list(map(_judgement, efficiency_pct.tolist(), size_bytes.tolist())),
    }


def _judgement(efficiency_pct: float, size_bytes: int) -> str | None:
    if np.isnan(efficiency_pct):
        return None
    if efficiency_pct > 100:
        return "above peak"
    if efficiency_pct > LITTLE_HEADROOM_PCT:
        return "little headroom"
    is_large, is_small = size_bytes > _LARGE_BYTES, size_bytes < _SMALL_BYTES
    low, high = _LARGE_PCT if is_large else _SMALL_PCT
    if (is_large or is_small) and low <= efficiency_pct <= high:
        return "usual for its size"
    return "room" if efficiency_pct < ROOM_PCT else "some headroom"
