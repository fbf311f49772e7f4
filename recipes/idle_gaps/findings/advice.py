"""What each kind of idle time means for an engineer, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nsys_llm.analyses.device.gap_sums import BUCKET_EDGES_NS, BUCKETS

from ..partials import MICRO_GAP_NS

#: Buckets of gaps as short as the time between two launches, and of longer ones.
SHORT: Final = BUCKETS[: 1 + BUCKET_EDGES_NS.index(MICRO_GAP_NS)]
LONG: Final = BUCKETS[len(SHORT) :]

_HOST_CAPTURE: Final = (
    "--trace=cuda,nvtx,osrt,python-gil --sample=process-tree --python-sampling=true"
)


@dataclass(frozen=True)
class Kind:
    """One kind of idle time.

    Attributes:
        title: What is wrong.
        causes: Its causes.
        buckets: The lengths of gaps that belong to it.
        recommendation: What to do.
        capture: What to record to know more; None where there is nothing.
        avoidable: Whether it is lost in calls that need not be there.
    """

    title: str
    causes: tuple[str, ...]
    buckets: tuple[str, ...]
    recommendation: str
    capture: str | None = None
    avoidable: bool = False


#: By the rule that tells of it.
KINDS: Final[Mapping[str, Kind]] = {
    "idle_host_sync": Kind(
        "The GPU stands still while the host waits for it and then launches anew",
        ("host_sync",),
        BUCKETS,
        "Find what reads a result back in the loop (`.item()`, `.cpu()`, sampling or stop checks "
        "on the host) and read it one step later: async scheduling in vLLM, the overlap scheduler "
        "in SGLang or TensorRT-LLM. Copy into pinned memory, and wait for an event and not for "
        "the device.",
        "--cudabacktrace=sync --sample=process-tree --python-backtrace=cuda",
        avoidable=True,
    ),
    "idle_sync_memop": Kind(
        "Blocking copies or fills keep the GPU idle",
        ("sync_memop",),
        BUCKETS,
        "Copy from pinned memory with the Async form (`pin_memory=True`, `non_blocking=True`): "
        "pageable memory is staged by the host while the GPU waits. Build the inputs of a step "
        "on the GPU, or send them one step ahead.",
        "--cudabacktrace=memory:0 --sample=process-tree",
        avoidable=True,
    ),
    "idle_alloc": Kind(
        "Memory is allocated or freed while the GPU is idle",
        ("alloc",),
        BUCKETS,
        "Allocate before the loop or from a pool: a preallocated KV cache and workspaces, "
        "PyTorch's caching allocator (`expandable_segments:True` against fragmentation), "
        "cudaMallocAsync with a release threshold. cudaFree and cudaHostAlloc wait for the device.",
        "--cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
        avoidable=True,
    ),
    "idle_module_load": Kind(
        "Code is loaded or compiled while the GPU is idle",
        ("module_load",),
        BUCKETS,
        "Warm up every shape before traffic comes (CUDA graph sizes, Triton and torch.compile "
        "caches), or set CUDA_MODULE_LOADING=EAGER. If it is warm-up, leave it out with "
        "`--skip-warmup` or `--filter-time`.",
        avoidable=True,
    ),
    "idle_back_pressure": Kind(
        "Launches wait for room in the launch queue while the GPU is idle",
        ("back_pressure",),
        BUCKETS,
        "Work on another stream or device holds the queue: look at what is in front, and launch "
        "fewer, larger pieces (CUDA graphs).",
    ),
    "launch_bound": Kind(
        "Short gaps add up in which the GPU waits for the next launch",
        ("launch_api", "host_no_cuda", "launch_latency", "other_api"),
        SHORT,
        "Replay the step as CUDA graphs (no `--enforce-eager`, batch sizes in the captured list), "
        "fuse small kernels (torch.compile), or give each launch more work (larger batch, longer "
        "chunks of prefill).",
        "--trace=cuda,nvtx --python-sampling=true --sample=process-tree",
    ),
    "queued_gaps": Kind(
        "Idle time between operations that were launched long before",
        ("queued",),
        BUCKETS,
        "The host is ahead here. Short gaps are the GPU's own way from one kernel to the next, "
        "and larger with node-level graph tracing: fewer, larger kernels (fusion, programmatic "
        "dependent launch) shorten it. Long ones wait for an event, a host function or another "
        "GPU.",
    ),
    "host_work": Kind(
        "The GPU waits for the host, which is in no CUDA call",
        ("host_no_cuda",),
        LONG,
        "The host schedules, tokenises, loads data or waits for another process. Move that off "
        "the thread that launches, or do it while the GPU runs the step before (async scheduling, "
        "more data loader workers, prefetch).",
        _HOST_CAPTURE,
    ),
    "slow_launches": Kind(
        "Long gaps pass inside calls that launch work, or between launch and execution",
        ("launch_api", "launch_latency", "other_api"),
        LONG,
        "A launch this slow is held up by a lock of the driver (another thread that allocates, "
        "polls or synchronises), by loading code on first use, or by a host thread without a "
        "core: pin threads, and look at the other threads there.",
        _HOST_CAPTURE,
    ),
}
