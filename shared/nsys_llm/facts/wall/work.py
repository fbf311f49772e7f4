"""What each device of a rank computed in each step, and what it launched. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.wall.layers import WallLayers
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.grouping import distinct, distinct_rows, exact_sums
from nsys_llm.numeric.intervals import IntArray, bin_edges, covered_in
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.kernel_launches import GEOMETRY
from nsys_llm.trace.steps import DeviceSteps
from nsys_llm.trace.wall import DeviceWork

#: Equal parts of the run that stand for steps where there are none.
PARTS: Final = 16


class DeviceWorks:
    """The devices of one rank, after its filters."""

    def __init__(self, view: RankView) -> None:
        self._trace = trace = view.trace
        self._steps = view.device_steps
        kernels = trace.tables["kernels"]
        self._ids = distinct(kernels["demangled_name_id"])
        self._names, self._code = coded_names(self._ids, trace.strings)
        self._has_shapes = all(name in kernels for name in GEOMETRY)
        self._requests = None if view.batches is None else view.batches.requests

    def of(self, layers: WallLayers) -> DeviceWork:
        """Return what one device did, by its layers."""
        device = layers.device_id
        found = self._steps.get(device)
        steps = found or self._parts(device)
        return DeviceWork(
            **vars(steps),
            compute_ns=covered_in(steps.window_ns, layers.only_compute),
            profiler_ns=covered_in(steps.window_ns, layers.profiler),
            names=self._names,
            launches=self._launches(device),
            has_shapes=self._has_shapes,
            requests=None if found is None else self._requests,
        )

    def _parts(self, device: int) -> DeviceSteps:
        span, _ = device_windows(self._trace, device)
        edges = bin_edges(int(span[0, 0]), int(span[-1, 1]), PARTS) if len(span) else span[:, 0]
        windows = np.column_stack((edges[:-1], edges[1:]))
        return DeviceSteps(windows, np.ones(len(windows), dtype=bool), has_steps=False)

    def _launches(self, device: int) -> IntArray:
        """Return its kernels by name and shape; a block at a time, because columns are long."""
        kernels = self._trace.tables["kernels"]
        parts = [np.empty((0, len(GEOMETRY) + 3), dtype=np.int64)]
        for block in blocks(len(kernels)):
            here = kernels["device_id"][block] == device
            # Not copied where all are here: a column of one value stays known as such.
            rows = block if here.all() else block.start + np.flatnonzero(here)
            time_ns = kernels["end_ns"][rows] - kernels["start_ns"][rows]
            nothing = np.zeros(time_ns.size, dtype=np.int64)
            shape = [kernels[name][rows] if self._has_shapes else nothing for name in GEOMETRY]
            key = [kernels["demangled_name_id"][rows], *shape]
            parts.append(_summed(key, nothing + 1, time_ns))
        name_id, *shape, launches_n, time_ns = np.concatenate(parts).T
        code = self._code[np.searchsorted(self._ids, name_id)]
        return _summed([code, *shape], launches_n, time_ns)


def _summed(key: Sequence[IntArray], launches_n: IntArray, time_ns: IntArray) -> IntArray:
    """Return the distinct keys in their order, each with its launches and their time."""
    first, code = distinct_rows(key)
    sums = (exact_sums(code, values, first.size) for values in (launches_n, time_ns))
    return np.column_stack((*(column[first] for column in key), *sums)).astype(np.int64)
