"""How long each stage of a launch takes: the call, the queue, the kernel.

As NVIDIA's `cuda_kern_exec_sum` has them: the API call on the host, the queue from the call's end
to the kernel's start, and the kernel. Overall is from the call's start to the end of the kernel
or of the call, whichever is later. A kernel that starts before its call returns has no queue time.
Nodes of a CUDA graph all have the times of the graph's launch call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.numeric.distributions import Spread, ValueCounts
from nsys_llm.numeric.grouping import distinct_rows
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import RankTrace, sane_times

#: Stages of a launch, and prefixes of their columns.
STAGES: Final = ("api", "queue", "kernel", "overall")


@dataclass(frozen=True)
class LaunchStages:
    """Kernels whose launch call is known, by group; arrays of shape (groups,).

    Attributes:
        api: Name of the function, without version.
        kernel: Codes into the rank's shown kernel names.
        spreads: By name of `STAGES`; the queue has fewer values than the others.
    """

    device_id: IntArray
    thread: IntArray
    api: tuple[str, ...]
    kernel: IntArray
    spreads: Mapping[str, Spread]


def map_stages(trace: RankTrace, kernel_name: IntArray) -> LaunchStages:
    """Reduce the kernels of one rank that start in the window and whose launch call is known."""
    kernels, calls = trace.tables["kernels"], trace.tables["api_calls"]
    known = (kernels["launch_row"] >= 0) & trace.starts_inside(kernels)
    if len(calls):
        known &= sane_times(calls["start_ns"], calls["end_ns"])[kernels["launch_row"]]
    kernels, kernel_name = kernels.take(known), kernel_name if known.all() else kernel_name[known]
    row, device, thread = kernels["launch_row"], kernels["device_id"], calls["global_tid"]
    apis, api = coded_names(calls["name_id"], trace.strings, strip_api_version)
    # A call's thread and function first, so that only one column has to be looked up by kernel.
    _, of_call = distinct_rows((thread, api))
    first, group = distinct_rows((device, of_call[row], kernel_name))
    del of_call  # as large as the trace
    counts, call = _stage_counts(kernels, calls, group), row[first]
    return LaunchStages(
        device_id=device[first],
        thread=thread[call],
        api=tuple(apis[code] for code in api[call].tolist()),
        kernel=kernel_name[first],
        spreads={stage: lengths.spread(len(first)) for stage, lengths in counts.items()},
    )


def _stage_counts(kernels: Table, calls: Table, group: IntArray) -> dict[str, ValueCounts]:
    """Count the lengths of each stage; none of them is there for all kernels at a time."""
    starts, ends, row = kernels["start_ns"], kernels["end_ns"], kernels["launch_row"]
    call_starts, call_ends = calls["start_ns"], calls["end_ns"]

    def api(rows: slice) -> tuple[IntArray, IntArray]:
        return group[rows], call_ends[row[rows]] - call_starts[row[rows]]

    def queue(rows: slice) -> tuple[IntArray, IntArray]:
        queue_ns = starts[rows] - call_ends[row[rows]]
        queued = queue_ns >= 0
        return group[rows][queued], queue_ns[queued]

    def kernel(rows: slice) -> tuple[IntArray, IntArray]:
        return group[rows], ends[rows] - starts[rows]

    def overall(rows: slice) -> tuple[IntArray, IntArray]:
        # At least the call: so it is not negative even where the clocks of host and GPU disagree.
        end_ns = np.maximum(ends[rows], call_ends[row[rows]])
        return group[rows], end_ns - call_starts[row[rows]]

    stages = {"api": api, "queue": queue, "kernel": kernel, "overall": overall}
    return {name: ValueCounts.in_blocks(len(kernels), of) for name, of in stages.items()}
