"""How long each device copied while no kernel ran, by direction: what other copies could hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.overlap import Spans
from nsys_llm.analyses.wall.load import load_spans
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    intersect_intervals,
    subtract_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import DEVICE_TO_HOST, HOST_TO_DEVICE, PAGEABLE
from nsys_llm.trace.rank_trace import RankTrace

_SIDES: Final = {HOST_TO_DEVICE: "source_memory_kind", DEVICE_TO_HOST: "target_memory_kind"}


@dataclass(frozen=True)
class ExposedCopies:
    """Time of one device in which copies or fills run, no kernel and no whole graph, and no load.

    Attributes:
        exposed_copy_ns: All of it, inside the windows.
        exposed_htod_ns: Its part in which copies from the host run and none to it.
        exposed_dtoh_ns: The other way round.
        exposed_both_ways_ns: Its part with both.
        exposed_pageable_ns: Its part in which a copy from or to pageable memory of the host runs.
    """

    exposed_copy_ns: int
    exposed_htod_ns: int
    exposed_dtoh_ns: int
    exposed_both_ways_ns: int
    exposed_pageable_ns: int


def exposed_copies(trace: RankTrace, spans: Mapping[int, Spans]) -> dict[int, ExposedCopies]:
    """Return those of each device of a rank."""
    return {device: _of_device(trace, device, some) for device, some in spans.items()}


def _of_device(trace: RankTrace, device: int, spans: Spans) -> ExposedCopies:
    exposed = spans.copies
    for other in (spans.compute, spans.communication, spans.graphs, load_spans(trace, device)):
        exposed = subtract_intervals(exposed, other)
    copies = trace.tables["memcpys"]
    here, kind = copies["device_id"] == device, copies["copy_kind"]
    ways = [_alone(trace, copies, here & (kind == way), exposed) for way in _SIDES]
    staged = [here & (kind == way) & (copies[side] == PAGEABLE) for way, side in _SIDES.items()]
    both_ns = total_length_ns(intersect_intervals(*ways))
    return ExposedCopies(
        exposed_copy_ns=total_length_ns(exposed),
        exposed_htod_ns=total_length_ns(ways[0]) - both_ns,
        exposed_dtoh_ns=total_length_ns(ways[1]) - both_ns,
        exposed_both_ways_ns=both_ns,
        exposed_pageable_ns=total_length_ns(_alone(trace, copies, staged[0] | staged[1], exposed)),
    )


def _alone(
    trace: RankTrace, copies: Table, chosen: npt.NDArray[np.bool_], exposed: IntArray
) -> IntArray:
    """Return when chosen copies run inside some spans."""
    start_ns, end_ns = copies["start_ns"][chosen], copies["end_ns"][chosen]
    if trace.windows_ns is not None:
        _, start_ns, end_ns = clip_to_windows(start_ns, end_ns, trace.windows_ns)
    return intersect_intervals(union_intervals(start_ns, end_ns), exposed)
