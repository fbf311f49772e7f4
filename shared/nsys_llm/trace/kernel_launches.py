"""Sizes and times of kernel launches, and where one stands as Nsight Compute counts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.enclosing import first_above
from nsys_llm.numeric.gaps import start_order
from nsys_llm.numeric.grouping import begins_group, distinct_codes, equals_before_n
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.rank_trace import RankTrace

#: Columns of the size of a launch: blocks of its grid, threads of a block.
GEOMETRY: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


@dataclass(frozen=True)
class NcuLaunches:
    """Some kernel launches of one rank; all of shape (launches,).

    Attributes:
        function: Name without parameters, templates and namespaces, by which Nsight Compute
            matches; None where the report has none.
        skip_n: How many kernels of that function the process launched before it in the capture, on
            all of its devices; NULL_INT where that is not known, since a CUDA graph that was traced
            as a whole ran before.
    """

    function: npt.NDArray[Any]
    skip_n: IntArray
    graph_node: npt.NDArray[np.bool_]


def launch_times(trace: RankTrace, rows: Table) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return when each kernel was launched, and whether that is known.

    Where it is not, the start on the GPU stands for the time.
    """
    calls, row = trace.tables.get("api_calls"), rows["launch_row"]
    if calls is None or not len(calls):
        return rows["start_ns"].copy(), row < -1
    known, at_ns = row >= 0, calls["start_ns"][row]
    if not known.all():
        at_ns[~known] = rows["start_ns"][~known]
    return at_ns, known


def ncu_launches(trace: RankTrace, chosen: Table) -> NcuLaunches:
    """Return some kernels of a rank as Nsight Compute counts them.

    Launches are in the order of their calls, nodes of one graph launch in that of their starts.
    Filters leave the count as it is: Nsight Compute knows nothing of them.

    Args:
        chosen: Rows of `trace.unfiltered["kernels"]`.
    """
    kernels = trace.unfiltered["kernels"]
    function_id = chosen["short_name_id"]
    names = [trace.strings.get(key) for key in function_id.tolist()]
    at_ns, start_ns = launch_times(trace, kernels)[0], kernels["start_ns"]
    order = start_order(at_ns, lambda some: (start_ns[some],))
    ids, code = distinct_codes(kernels["short_name_id"])
    if order is not None:
        at_ns, start_ns, code = at_ns[order], start_ns[order], code[order]
    chosen_ns, _ = launch_times(trace, chosen)
    # By the time of its launch, which is among `at_ns`, then by its start.
    first = np.flatnonzero(begins_group(at_ns))
    group, bounds = np.searchsorted(at_ns[first], chosen_ns), np.append(first, at_ns.size)
    until = first_above(start_ns, chosen["start_ns"] - 1, group, bounds)
    skip_n = equals_before_n(code, np.searchsorted(ids, function_id), until)
    whole = trace.unfiltered.get("graph_traces")
    if whole is not None and len(whole):
        hidden_ns, _ = launch_times(trace, whole)
        skip_n[chosen_ns > hidden_ns.min()] = NULL_INT
    return NcuLaunches(np.array(names, dtype=object), skip_n, is_graph_node(chosen))
