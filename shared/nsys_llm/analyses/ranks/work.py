"""What each device of a rank computed in each step, and what it launched. Pure numpy."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.steps.of_rank import whole_steps
from nsys_llm.analyses.wall.layers import WallLayers
from nsys_llm.numeric.grouping import distinct_rows, exact_sums
from nsys_llm.numeric.intervals import IntArray, bounds, covered_ns
from nsys_llm.numeric.time_bins import bin_edges
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import device_windows
from nsys_llm.trace.wall import DeviceWork

#: Equal parts of the run that stand for steps where there are none.
PARTS: Final = 16
_SHAPE: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


class DeviceWorks:
    """The devices of one rank, after its filters."""

    def __init__(self, view: RankView) -> None:
        """Find the steps of a rank."""
        trace, steps = view.trace, view.steps
        self._trace = trace
        every = [] if steps is None else whole_steps(trace, steps)
        self._steps = {device: (windows, whole) for device, windows, whole in every}
        kernels = trace.tables["kernels"]
        self._names, self._code = coded_names(kernels["demangled_name_id"], trace.strings)
        self._has_shapes = all(name in kernels for name in _SHAPE)

    def of(self, layers: WallLayers) -> DeviceWork:
        """Return what one device did, by its layers."""
        device = layers.device_id
        windows, whole = self._steps.get(device, (None, None))
        has_steps = windows is not None
        if windows is None or whole is None:
            span, _ = device_windows(self._trace, device)
            start_ns, end_ns = bounds(span)
            if start_ns is None or end_ns is None:
                windows = np.empty((0, 2), dtype=np.int64)
            else:
                edges = bin_edges(start_ns, end_ns, PARTS)
                windows = np.column_stack((edges[:-1], edges[1:]))
            whole = np.ones(len(windows), dtype=bool)
        before, after = (covered_ns(windows[:, side], layers.compute) for side in (0, 1))
        return DeviceWork(
            windows,
            whole,
            after - before,
            self._names,
            self._launches(device),
            self._has_shapes,
            has_steps,
        )

    def _launches(self, device: int) -> IntArray:
        kernels = self._trace.tables["kernels"]
        rows = np.flatnonzero(kernels["device_id"] == device)
        nothing = np.zeros(rows.size, dtype=np.int64)
        shape = [kernels[name][rows] if self._has_shapes else nothing for name in _SHAPE]
        columns = [self._code[rows], *shape]
        first, code = distinct_rows(columns)
        time_ns = kernels["end_ns"][rows] - kernels["start_ns"][rows]
        sums = (np.bincount(code, minlength=first.size), exact_sums(code, time_ns, first.size))
        return np.column_stack((*(column[first] for column in columns), *sums)).astype(np.int64)
