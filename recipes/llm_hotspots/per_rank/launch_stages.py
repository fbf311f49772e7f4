"""How long each stage of a launch takes: the call, the queue, the kernel.

As NVIDIA's `cuda_kern_exec_sum` has them: the API call on the host, the queue from the call's end
to the kernel's start, and the kernel. Overall is from the call's start to the end of the kernel
or of the call, whichever is later. A kernel that starts before its call returns has no queue time.
Nodes of a CUDA graph all have the times of the graph's launch call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.numeric.distributions import Spread, ValueCounts
from nsys_llm.numeric.grouping import distinct_codes
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
    apis, threads, devices, used, group, sizes = _groups(kernels, kernel_name, calls, trace.strings)
    of_device, of_thread, of_api, of_kernel = np.unravel_index(used, sizes)
    counts = _stage_counts(kernels, calls, group)
    return LaunchStages(
        device_id=devices[of_device],
        thread=threads[of_thread],
        api=tuple(apis[code] for code in of_api.tolist()),
        kernel=of_kernel.astype(np.int64),
        spreads={stage: lengths.spread(len(used)) for stage, lengths in counts.items()},
    )


def _groups(
    kernels: Table, kernel_name: IntArray, calls: Table, strings: Mapping[int, str]
) -> tuple[tuple[str, ...], IntArray, IntArray, IntArray, IntArray, tuple[int, ...]]:
    """Return functions, threads, devices; packed groups that occur, each kernel's; and sizes."""
    row = kernels["launch_row"]
    apis, api_of_call = coded_names(calls["name_id"], strings, strip_api_version)
    threads, thread_of_call = distinct_codes(calls["global_tid"])
    devices, device = distinct_codes(kernels["device_id"])
    counts_n = (len(devices), len(threads), len(apis), int(kernel_name.max(initial=0)) + 1)
    # With all sizes at least 1, the codes fit together even where there is no kernel at all.
    sizes = tuple(max(size, 1) for size in counts_n)
    # A call's thread and function first, so that only one column has to be looked up by kernel.
    of_call = _packed((thread_of_call, api_of_call), sizes[1:3])
    del api_of_call, thread_of_call  # as large as the trace
    key = _packed((device, of_call[row], kernel_name), (sizes[0], sizes[1] * sizes[2], sizes[3]))
    del device, of_call
    used, group = distinct_codes(key)
    return apis, threads, devices, used, group, sizes


def _packed(codes: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    """Return one code for each combination of codes, as `np.unravel_index` takes it apart."""
    # Most ranks have one device.
    several = [pair for pair in zip(codes, sizes, strict=True) if pair[1] != 1]
    packed = several[0][0] if several else codes[0]
    for code, size in several[1:]:
        packed = packed * size
        packed += code
    return packed


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
