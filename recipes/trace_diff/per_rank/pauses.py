"""In which NVTX range the host of one rank was while a GPU was idle."""

from __future__ import annotations

import numpy as np

from nsys_llm.analyses.nvtx.nvtx_tree import NvtxTree
from nsys_llm.analyses.nvtx.range_names import RangeNames
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.names import step_key
from nsys_llm.trace.rank_trace import RankTrace


class ThreadRanges:
    """The ranges of all threads of a rank, and the names of those that were asked for."""

    def __init__(self, trace: RankTrace) -> None:
        """Read the ranges."""
        self._trace, events = trace, trace.tables.get("nvtx_events")
        self._tree = NvtxTree.of(events, trace.last_end_ns)
        self._texts = RangeNames.of(events, self._tree.event, trace.strings)
        self._place: dict[str, int] = {"": 0}

    @property
    def names(self) -> tuple[str, ...]:
        """Names with # for running numbers; the first stands for no range."""
        return tuple(self._place)

    def during(self, start_ns: IntArray, end_ns: IntArray, launch_row: IntArray) -> IntArray:
        """Return the innermost range in the middle of what a thread did before its launch.

        Args:
            start_ns: Shape (gaps,), when each gap began.
            end_ns: When it ended.
            launch_row: Row of the API call that launched what ended it, -1 where not known.

        Returns:
            Shape (gaps,), positions in `names`.
        """
        calls = self._trace.tables.get("api_calls")
        if calls is None or not len(calls) or not len(self._tree):
            return np.zeros(start_ns.shape, dtype=np.int64)
        row = np.maximum(launch_row, 0)
        called_ns = np.clip(calls["start_ns"][row], start_ns, end_ns)
        thread = self._tree.thread_codes(calls["global_tid"][row])
        middle_ns = start_ns + (called_ns - start_ns) // 2
        piece = self._tree.innermost(np.where(launch_row < 0, -1, thread), middle_ns)
        return np.array([self._code(place) for place in piece.tolist()], dtype=np.int64)

    def _code(self, piece: int) -> int:
        name = "" if piece < 0 else step_key(self._texts.texts[self._texts.code[piece]])
        return self._place.setdefault(name, len(self._place))
