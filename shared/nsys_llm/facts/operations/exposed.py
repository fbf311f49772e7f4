"""Of which operations, and on whose streams, the exposed communication of a rank is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.wall.layers import WallLayers
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray, clip_to_windows, intersect_intervals
from nsys_llm.taxonomy.communication import COPY_ENGINE, operation_of
from nsys_llm.trace.device_ops import device_windows


@dataclass(frozen=True)
class ExposedOperation:
    """One operation on one kind of stream of one device; the exposed times of a device add up.

    Attributes:
        operation: See `operation_of`; `COPY_ENGINE` of copies between GPUs of the rank.
        on_compute_stream: Whether it runs on streams that mostly compute.
        launches_n: Launches of which some time is in the windows.
        running_ns: Time of the windows in which they ran, whatever else did.
        exposed_ns: The part beside which nothing computes, as in the wall split. Of operations at
            the same time, the one that began first has it.
    """

    device_id: int
    operation: str
    on_compute_stream: bool
    launches_n: int
    running_ns: int
    exposed_ns: int


def map_exposed(view: RankView) -> tuple[ExposedOperation, ...]:
    """Divide the exposed communication of each device of a rank, the longest part first."""
    return tuple(part for layers in view.wall_layers[1] for part in _of_device(view, layers))


def _of_device(view: RankView, layers: WallLayers) -> list[ExposedOperation]:
    used, label = np.unique(layers.talk_label, return_inverse=True)
    operations = [*map(operation_of, layers.names), COPY_ENGINE]
    kinds = [(operations[some // 2], bool(some % 2)) for some in used.tolist()]
    distinct = sorted(set(kinds))
    code = np.array([distinct.index(kind) for kind in kinds], dtype=np.int64)[label]
    windows, _ = device_windows(view.trace, layers.device_id, whole_capture=view.whole_capture)
    running_ns, launches_n = _inside(layers.talk, code, windows, len(distinct))
    exposed = intersect_intervals(layers.communication, windows)
    exposed_ns, _ = _inside(layers.talk, code, exposed, len(distinct))
    parts = [
        ExposedOperation(layers.device_id, *kind, *numbers)
        for kind, *numbers in zip(
            distinct, launches_n.tolist(), running_ns.tolist(), exposed_ns.tolist(), strict=True
        )
    ]
    return sorted(parts, key=lambda part: -part.exposed_ns)


def _inside(
    spans: IntArray, code: IntArray, windows: IntArray, codes_n: int
) -> tuple[IntArray, IntArray]:
    """Return the time of disjoint spans in windows, and their number, by code."""
    owner, start_ns, end_ns = clip_to_windows(spans[:, 0], spans[:, 1], windows)
    time_ns = exact_sums(code[owner], end_ns - start_ns, codes_n)
    return time_ns, np.bincount(code[np.unique(owner)], minlength=codes_n)
