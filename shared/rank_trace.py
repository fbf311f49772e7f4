"""The rows of one rank, as every analysis gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.intervals import IntArray, clipped_lengths, starts_inside
from nsys_llm.tables import Table

__all__ = ["OP_TABLES", "RankTrace"]

#: Tables of GPU operations, and what one of their rows is called in outputs.
OP_TABLES: Final = {
    "kernels": "kernel",
    "memcpys": "memcpy",
    "memsets": "memset",
    "graph_traces": "graph",
}


@dataclass(frozen=True)
class RankTrace:
    """The rows of one rank that the filters leave, and the time that they speak of.

    Attributes:
        tables: By our names. Operations have end >= start and reach into the windows; each
            operation table has a column `launch_row`, the row of the API call that launched it in
            `tables["api_calls"]`, or -1.
        strings: Texts behind ids.
        windows_ns: Shape (n, 2), sorted, disjoint, the report's clock; None without a time filter.
        unfiltered: The operation tables before any filter.
        device_ids: The CUDA devices of the rank that --device leaves, sorted; the other filters
            may leave one of them without an operation.
    """

    tables: Mapping[str, Table]
    strings: Mapping[int, str]
    windows_ns: IntArray | None
    unfiltered: Mapping[str, Table]
    device_ids: tuple[int, ...]

    def starts_inside(self, op: Table) -> npt.NDArray[np.bool_]:
        """Tell which operations start in the windows, and so count as launches."""
        if self.windows_ns is None:
            return np.ones(len(op), dtype=bool)
        return starts_inside(op["start_ns"], self.windows_ns)

    def clipped_ns(self, op: Table) -> IntArray:
        """Return the time of each operation inside the windows."""
        if self.windows_ns is None:
            return np.asarray(op["end_ns"] - op["start_ns"])
        return clipped_lengths(op["start_ns"], op["end_ns"], self.windows_ns)
