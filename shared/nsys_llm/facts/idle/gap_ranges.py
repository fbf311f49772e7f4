"""In which NVTX range the host was in gaps: of each cause and length the one with most time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.device.gap_sums import BUCKET_EDGES_NS, BUCKETS
from nsys_llm.facts.host.places import Places
from nsys_llm.numeric.gaps import Gaps
from nsys_llm.numeric.grouping import exact_sums, split_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, HOST_CAUSES
from nsys_llm.trace.device_ops import DeviceOps

_HOST: tuple[int, ...] = tuple(CAUSE_NAMES.index(name) for name in HOST_CAUSES)


def gap_ranges(
    ops: DeviceOps, named: npt.NDArray[np.int8], calls: Table, places: Places
) -> Mapping[tuple[int, int], tuple[str, int]]:
    """Return the range with most time of the gaps named after a host's cause, and that time in ns.

    The innermost range of the launching thread, in the middle of the time until its call returned.

    Args:
        named: Shape (gaps,), the code of the cause that each gap is named after.

    Returns:
        By code of the cause and place among `BUCKETS`; nothing for gaps outside of all ranges.
    """
    launch = np.append(ops.launch_row, -1)[ops.gaps.after]
    rows = np.flatnonzero(np.isin(named, _HOST) & (launch >= 0))
    if not rows.size or len(places.names) < 2:
        return {}
    gaps, call = ops.gaps.take(rows), launch[rows]
    length = gaps.end_ns - gaps.start_ns
    place = _places(gaps, calls["global_tid"][call], calls["end_ns"][call], places)
    bucket = np.searchsorted(BUCKET_EDGES_NS, length, side="right")
    group = named[rows].astype(np.int64) * len(BUCKETS) + bucket
    shape = len(CAUSE_NAMES) * len(BUCKETS), len(places.names)
    sums = exact_sums(group * shape[1] + place, length, shape[0] * shape[1]).reshape(shape)[:, 1:]
    most = sums.argmax(axis=1)
    return {
        divmod(of, len(BUCKETS)): (places.names[1 + most[of]], int(sums[of, most[of]]))
        for of in np.flatnonzero(sums.any(axis=1)).tolist()
    }


def _places(gaps: Gaps, thread: IntArray, done_ns: IntArray, places: Places) -> IntArray:
    """Return the place of the thread of each gap among the names of `places`."""
    middle_ns = (gaps.start_ns + np.clip(done_ns, gaps.start_ns, gaps.end_ns)) // 2
    threads, code = np.unique(thread, return_inverse=True)
    found = np.zeros(len(gaps), dtype=np.int64)
    for of, some in zip(threads.tolist(), split_by_code(code, threads.size), strict=True):
        found[some] = places.names_at(of, middle_ns[some])
    return found
