"""The rules of this recipe: title, threshold with its source, advice, what to record.

Limits by severity are percentages, and stand highest first.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.rules import EXPLAINER, OURS, Case, Rule, limits_text, rules_by_id
from nsys_llm.view.text import format_bytes, format_count, format_ns

from ..tables.bandwidth import LITTLE_HEADROOM_PCT, ROOM_PCT
from ..tables.launches import STORMS

#: Share of the time with a kernel running that one kernel takes.
DOMINANT_PCT: Final = {"high": 50.0, "medium": 25.0}
#: Share of the kernel time above which categories say too little.
UNMATCHED_PCT: Final = 10.0

#: Communication without computation, of a device's busy time.
EXPOSED_PCT: Final = {"high": 30.0, "medium": 15.0, "low": 5.0}
#: How much more compute than the others makes a rank or a machine slow. Boards of one model differ
#: by 2 to 4 % in clock.
SLOW_RATIO: Final = {"high": 1.25, "medium": 1.10, "low": 1.05}
#: As many launches as elsewhere, within this share.
SAME_LAUNCHES: Final = 0.01
#: A late rank has so much less time in collectives than the median, and the difference takes at
#: least so much of its window.
LATE_RATIO: Final = 1.5
LATE_PCT: Final = {"medium": 5.0, "low": 1.0}
#: A kernel is uneven from this ratio of the most to the median, and if what ranks have above it is
#: at least so much of all compute. As many kernels are told at most.
UNEVEN_RATIO: Final = 1.2
UNEVEN_PCT: Final = {"medium": 5.0, "low": 1.0}
UNEVEN_KERNELS: Final = 3

#: Exposed copies, of a device's window. A device that only copies computes nothing, so high and
#: medium are the limits at which the explainer calls idle time so; low is ours.
EXPOSED_COPIES_PCT: Final = {"high": 40.0, "medium": 20.0, "low": 5.0}
#: Operations that block the host, of the windows of all devices. Below, they are a note:
#: `nsys analyze` lists them however short they are.
BLOCKING_PCT: Final = {"high": 20.0, "medium": 5.0, "low": 0.5}
#: Copies inside the device, of busy time.
DEVICE_COPY_PCT: Final = {"medium": 10.0, "low": 5.0}

#: vLLM and SGLang reserve 88 to 92 % by default (gpu_memory_utilization, mem_fraction_static), so
#: that much is intended; from here on less than a twentieth is left for everything else.
NEAR_FULL_PCT: Final = 95.0
#: Growth of memory in use, quarter by quarter, that is told. PyTorch's allocator takes blocks of 2
#: and 20 MiB, so a single one is no growth.
GROWTH_BYTES: Final = 64 << 20
GROWTH_PCT: Final = 2.0
#: Below this, tensor cores are idle most of the time of matrix products that could fill them; far
#: below the 60 to 80 % of large GEMMs.
LOW_TENSOR_PCT: Final = 25.0
#: From here on memory bandwidth limits a kernel; below it, Nsight Compute's Speed of Light rule
#: speaks of latency.
DRAM_BOUND_PCT: Final = 60.0
#: A mean of fewer samples, or of samples that are mostly of other kernels, says nothing.
LEAST_SAMPLES: Final = 30
LEAST_OWN_PCT: Final = 50.0

#: Launches before and after a change of configuration, each, and of each configuration that counts.
LEAST_LAUNCHES: Final = 5
#: Ratio of medians between two configurations that makes their shared median meaningless.
SHAPE_RATIO: Final = 2.0

#: What one cause may cost, of a window. From 20 % on the explainer reports idle time of all causes
#: together; the others are ours: 1 % is about what two runs of the same job differ by.
LOSS_PCT: Final = {"high": 20.0, "medium": 5.0, "low": 1.0}
#: As much as the explainer asks of synchronisation, in ns; less is not worth a word.
LEAST_NS: Final = 1_000_000
#: From this share of a window on, waits that cost nothing are worth a note.
MOSTLY_PCT: Final = 50.0
#: Calls that come so often in the steady part of a window are in the loop.
REPEATS: Final = 3
#: The GPU waits for launches if it idles this share of its window inside launch calls. High is what
#: the explainer calls high idle time.
LAUNCH_BOUND_PCT: Final = {"high": 40.0, "medium": 10.0}
#: Polling takes this share of one thread's time: a tenth of a core.
POLLING_PCT: Final = 10.0
#: So many allocations a second are not those of a caching allocator that has settled.
ALLOCATIONS_PER_S: Final = 100.0

#: Shows the clocks of each GPU. Later releases add an s, and take this as its beginning.
_CLOCKS: Final = "--gpu-metrics-device=all"
#: Call stacks need CPU sampling, and calls this short a threshold of 0 (`nsys profile --help`).
_COPY_CALLS: Final = "--cudabacktrace=memory:0 --sample=process-tree"

_STORM_WORDS: Final = ", or ".join(
    f"{format_count(rate)} kernels a second of at most {format_ns(p50_ns)} in the median"
    for rate, p50_ns in STORMS
)
_LOSS_WORDS: Final = f"at least {format_ns(LEAST_NS)}; {limits_text(LOSS_PCT)} of the window"
_FLAGGED: Final = "any time in kernels that have the flag in the rule file"
_BLOCKING_WORDS: Final = f"{limits_text(BLOCKING_PCT)} of the windows of all devices, a note below"
_OURS_AND_EXPLAINER: Final = f"{EXPLAINER} (high and medium), {OURS} (low)"

RULES: Final = rules_by_id(
    Rule(
        "dominant_kernel",
        scope="kernel",
        title="{kernel}{operation} takes {share} of the kernel time",
        threshold=f"{limits_text(DOMINANT_PCT)} of the time with a kernel running",
        source=EXPLAINER,
        recommendation="Whatever makes this kernel faster, or rarer, moves the whole run: look at "
        "its shapes and launch configurations first, then at it alone in Nsight Compute.",
        window_shows="all of that rank",
        tables=("kernels", "rank_kernels", "devices"),
    ),
    Rule(
        "unmatched_kernels",
        scope="category",
        title="No rule knows the kernels of {share} of the kernel time",
        threshold=f"from {UNMATCHED_PCT:g} % of the kernel time",
        source=OURS,
        recommendation="Read the other categories as lower bounds. `--engine` chooses another rule "
        "file if the engine was not told by the names.",
        tables=("categories", "kernels", "rules"),
    ),
    Rule(
        "late_rank",
        scope="rank",
        title="The others seem to wait for rank {rank}: it spends least time in collectives",
        threshold=f"time in collectives 1 / {LATE_RATIO:g} of the median's or less, as many of "
        f"them within {SAME_LAUNCHES:.0%}, and a difference of: {limits_text(LATE_PCT)} of its "
        "window",
        source=OURS,
        recommendation="Run tail_stats: it matches the collectives one by one and names the rank "
        "that each waited for. Then look at what rank {rank} does before it joins (idle_gaps).",
        window_shows="all of that rank",
        tables=("imbalance", "processes"),
    ),
    Rule(
        "uneven_kernel",
        scope="kernel",
        title="{kernel} takes longest on rank {rank}",
        threshold=f"{UNEVEN_RATIO:g} times the median rank; above it {limits_text(UNEVEN_PCT)} of "
        f"all compute; {UNEVEN_KERNELS} kernels at most",
        source=OURS,
        recommendation="More launches: spread the work (expert routing, batches); stages of a "
        "pipeline differ by design. As many launches: compare shapes and clocks of the ranks.",
        tables=("imbalance",),
    ),
    Rule(
        "slow_host",
        scope="run",
        title="Ranks of machine {host} compute {more} longer than the others",
        threshold="mean compute of its ranks over the median rank: "
        f"{limits_text(SLOW_RATIO, ' times')}; and beyond what the slowest of as many equal "
        "machines would show by chance",
        source=OURS,
        recommendation="Compare that machine's clocks, power limits and cooling with the others, "
        "and look for other jobs on it.",
        cases={
            "other_mix": Case(
                recommendation="Look for work that only the ranks of this machine have: that "
                "kernel is not slower, it runs more often."
            )
        },
        tables=("host_imbalance", "rank_kernels"),
    ),
    Rule(
        "bandwidth_pattern_unused",
        scope="kernel",
        title="No kernel fits {pattern} of --weights",
        threshold="a pattern without a launch",
        source=OURS,
        recommendation="Take the pattern from the table kernels; names are matched in the form "
        "that --base or --mangled chooses.",
        tables=("bandwidth", "kernels"),
    ),
    Rule(
        "exposed_copies",
        scope="copy",
        title="{kind} copies run without a kernel for {share} of the window on rank {rank}",
        threshold=f"copies without a kernel: {limits_text(EXPOSED_COPIES_PCT)} of a device's "
        "window",
        source=_OURS_AND_EXPLAINER,
        recommendation="Copy what the next step needs while this one computes: pinned memory, "
        "cudaMemcpyAsync, a stream of its own. If this is the loading of the model, leave it "
        "out with --filter-time or --skip-warmup.",
        tables=("memops", "devices"),
    ),
    Rule(
        "device_copies",
        scope="copy",
        title="Copies inside the device take {share} of busy time on rank {rank}",
        threshold=f"{limits_text(DEVICE_COPY_PCT)} of a device's busy time",
        source=OURS,
        recommendation="Find what moves tensors without computing: .clone(), .contiguous(), "
        "torch.cat, KV-cache copies, splits of a batch; write results in place, or let "
        "torch.compile fuse them.",
        record=_COPY_CALLS,
        tables=("memops", "devices"),
    ),
    Rule(
        "memory_near_full",
        scope="device",
        title="Rank {rank} fills {share} of its GPU's memory",
        threshold=f"from {NEAR_FULL_PCT:g} % of the GPU's memory at the peak",
        source="above the 88 to 92 % that vLLM and SGLang reserve by default",
        recommendation="Leave more room: a smaller share for the key-value cache "
        "(gpu_memory_utilization in vLLM, mem_fraction_static in SGLang, free_gpu_memory_fraction "
        "in TensorRT-LLM), smaller batches, or activation checkpointing in training. A peak like "
        "this turns the next longer sequence into an out-of-memory error or into allocator "
        "retries.",
        tables=("memory_watermarks", "memory_allocators", "memory"),
    ),
    Rule(
        "memory_growth",
        scope="device",
        title="Memory in use on rank {rank} grows in every quarter of the run",
        threshold=f"more in use at the end of every quarter, {format_bytes(GROWTH_BYTES)} and "
        f"{GROWTH_PCT:g} % after the first in all",
        source=OURS,
        recommendation="Tell warm-up from a leak: capture later and longer; if it still grows, "
        "look for tensors kept in lists, shapes that never repeat (a new allocation or a new "
        "library workspace for each), and CUDA graphs captured again. In PyTorch, "
        "torch.cuda.memory._record_memory_history names the lines.",
        record="--cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
        tables=("memory_watermarks", "memory_allocators", "memory"),
    ),
    Rule(
        "low_tensor_activity",
        scope="category",
        title="Tensor cores are {share} active in matrix products",
        threshold=f"tensor cores below {LOW_TENSOR_PCT:g} %, DRAM below {DRAM_BOUND_PCT:g} % of "
        f"its peak, in {LEAST_SAMPLES} samples or more of which {LEAST_OWN_PCT:g} % or more are of "
        "matrix products",
        source=OURS,
        recommendation="Look whether the products are small (few tokens a step: batch more), run "
        "in FP32 or TF32 where BF16 or FP8 would do, or have sizes that are no multiple of the "
        "tile (pad them). The table kernels and nvjet name tiles and types.",
        tables=("gpu_metrics", "rank_categories"),
    ),
    Rule(
        "dram_bound",
        scope="kernel",
        title="{kernel} is bound by memory bandwidth",
        threshold=f"DRAM from {DRAM_BOUND_PCT:g} % of its peak, in {LEAST_SAMPLES} samples or more "
        f"of which {LEAST_OWN_PCT:g} % or more are of the kernel",
        source="Speed of Light rule of Nsight Compute",
        recommendation="A faster kernel will not help much; fewer bytes will: quantise weights or "
        "the key-value cache, fuse it with its neighbours, or batch more requests so that each "
        "byte of weights serves more tokens.",
        tables=("gpu_metrics", "kernels"),
    ),
    Rule(
        "configuration_change",
        scope="kernel",
        title="{kernel} changes its launch configuration during the run",
        threshold=f"{LEAST_LAUNCHES} launches or more of each; the first does not come again",
        source=OURS,
        recommendation="See what changed there: another batch or sequence length, the step from "
        "prefill to decode, or an autotuner's choice. Compare durations within one configuration "
        "only.",
        tables=("rank_watched_kernel_configs", "watched_kernels"),
    ),
    Rule(
        "mixed_configurations",
        scope="kernel",
        title="{kernel} runs in {configurations_n} launch configurations that take different times",
        threshold=f"medians {SHAPE_RATIO:g} times apart, of {LEAST_LAUNCHES} launches or more each",
        source=OURS,
        recommendation="Read percentiles of this kernel by configuration: pooled over them, a mix "
        "of shapes looks like a tail. tail_stats keeps them apart.",
        tables=("watched_kernel_configs",),
    ),
    Rule(
        "slow_launches",
        scope="device",
        title="Slow launch calls leave the GPU idle",
        threshold=f"idle inside launch calls that are far longer than their median: {_LOSS_WORDS}",
        source=OURS,
        recommendation="Look at the longest of them: lazy loading of a kernel's code (warm up all "
        "shapes, or set CUDA_MODULE_LOADING=EAGER), a lock that another thread holds, or a host "
        "that was taken off its core.",
        record="--cudabacktrace=kernel:100000 --sample=process-tree --trace=cuda,nvtx,osrt",
        tables=("launches",),
    ),
    Rule(
        "launch_queue_full",
        scope="device",
        title="The host waits for room in the launch queue",
        threshold=f"a note where such calls take {LOSS_PCT['low']:g} % of the window while the GPU "
        "is busy",
        source=OURS,
        recommendation="The GPU is the bottleneck there, and loses nothing. The host is stuck in "
        "the call, though: what it should do meanwhile (scheduling, sampling, I/O) belongs on "
        "another thread.",
        tables=("launches",),
    ),
    Rule(
        "launch_bound",
        scope="device",
        title="The GPU waits for kernel launches",
        threshold=f"idle inside launch calls: {limits_text(LAUNCH_BOUND_PCT)} of the window",
        source=f"{EXPLAINER} (high), {OURS} (medium)",
        recommendation="Launch less: CUDA graphs for decode steps, fused kernels, larger batches. "
        "Launch ahead: no synchronisation between steps.",
        tables=("launches", "api_classes"),
    ),
    Rule(
        "sync_in_loop",
        scope="api",
        title="Synchronisation in the loop lets the GPU run dry",
        threshold=f"{REPEATS} calls or more in the steady part; idle in or after them: "
        f"{_LOSS_WORDS}",
        source=f"{EXPLAINER} (high, and the least time), {OURS} (the others)",
        recommendation="Find what needs the result on the host (`.item()`, `.cpu()`, a printed "
        "loss, sampling on the CPU) and keep it on the GPU, or read it one step later from pinned "
        "memory behind an event.",
        record="--cudabacktrace=sync --sample=process-tree --python-backtrace=cuda",
        tables=("api_classes", "rank_apis"),
    ),
    Rule(
        "host_waits_for_gpu",
        scope="api",
        title="The host waits for the GPU most of the time, at little cost",
        threshold=f"a note where waits take {MOSTLY_PCT:g} % of the window and cost little",
        source=OURS,
        recommendation="The host is ahead of the GPU: shortening these waits wins nothing. Look at "
        "the kernels instead.",
        tables=("api_classes", "rank_apis"),
    ),
    Rule(
        "sync_memop",
        scope="api",
        title="Copies and fills that block the host, again and again",
        threshold=f"{REPEATS} calls or more in the steady part, which take {_LOSS_WORDS}; medium "
        "at most",
        source=OURS,
        recommendation="Use the Async form on a stream of its own with pinned host memory, so that "
        "copies run beside kernels and the host can launch ahead.",
        record=_COPY_CALLS,
        tables=("api_classes", "rank_apis"),
    ),
    Rule(
        "polling",
        scope="api",
        title="Polling for the GPU burns CPU time",
        threshold=f"from {POLLING_PCT:g} % of the window",
        source=OURS,
        recommendation="Poll less often, or wait for an event made with cudaEventBlockingSync. A "
        "polling thread also takes the driver's lock, and the GIL if it is Python, from the thread "
        "that launches.",
        tables=("api_classes", "rank_apis"),
    ),
    Rule(
        "allocation_churn",
        scope="rank",
        title="Memory is allocated and freed in the loop",
        threshold=f"{REPEATS} calls or more after the first quarter of the window; medium from "
        f"{LOSS_PCT['low']:g} % of the rest, low from {ALLOCATIONS_PER_S:g} a second",
        source=OURS,
        recommendation="Allocate before the loop, or from a pool: PyTorch's caching allocator "
        "(expandable_segments:True against fragmentation), cudaMallocAsync with a release "
        "threshold, preallocated KV cache and workspaces.",
        record="--cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
        tables=("api_classes", "rank_apis"),
    ),
    Rule(
        "os_wait",
        scope="rank",
        title="A launching thread sits in the operating system while the GPU is idle",
        threshold=f"idle while a launching thread is in the call: {_LOSS_WORDS}; medium at most",
        source=OURS,
        recommendation="A lock (futex, cond_wait: often Python's GIL), a read, or a wait for "
        "another process; look at the thread there, and move it off the thread that launches.",
        record="--trace=cuda,nvtx,osrt,python-gil --osrt-backtrace-threshold=100000",
        tables=("os_waits", "launches"),
    ),
    Rule(
        "stored_secrets",
        scope="run",
        title="The reports store what looks like secrets, in {variables}",
        threshold="a variable with a name like that of a secret in the stored environment",
        source=OURS,
        recommendation="Share these results instead of the reports, or profile again without these "
        "variables (`env -u NAME nsys profile ...`). Replace a secret that has left your hands in "
        "a report.",
        tables=("files",),
    ),
    Rule(
        "exposed_communication",
        scope="device",
        title="Communication without computation takes {share} of busy time on rank {rank}",
        threshold=f"{limits_text(EXPOSED_PCT)} of a device's busy time",
        source=OURS,
        recommendation="Let tail_stats split it into waiting and transfer first. Waiting: mend the "
        "late rank. Transfer: overlap it with computation (micro-batches, asynchronous tensor "
        "parallelism, bucketed gradients), or use a faster all-reduce for small messages.",
        cases={
            "stages": Case(
                recommendation="Run tail_stats for the share of the bubble. More microbatches per "
                "step, or interleaved stages, shrink it."
            )
        },
        window_shows="the longest stretch of it",
        tables=("overlap",),
    ),
    Rule(
        "slow_rank",
        scope="rank",
        title="Rank {rank} computes {more} longer than {usual}",
        threshold=f"compute over the median rank: {limits_text(SLOW_RATIO, ' times')}; of 8 ranks "
        "or more, beyond what the slowest of as many equal ranks would show by chance",
        source=OURS,
        recommendation="Compare clocks, power and temperature of that GPU with the others "
        "(nvidia-smi -q -d CLOCK,PERFORMANCE), look for another job on it, and for larger shapes "
        "of its kernels.",
        cases={
            "more_launches": Case(
                recommendation="Look for work that only this rank has: experts that get most "
                "tokens, the longer sequences of a batch, embedding or output layers of a pipeline "
                "stage, sampling."
            ),
            "other_mix": Case(
                recommendation="Look for work that only this rank has: that kernel is not slower, "
                "it runs more often."
            ),
        },
        record=_CLOCKS,
        window_shows="all of that rank",
        tables=("processes", "imbalance", "rank_kernels"),
    ),
    Rule(
        "uneven_work",
        scope="rank",
        title="Rank {rank} has {more} more to compute, in {kernels}",
        threshold="a slow rank whose other kernels are as fast as elsewhere, with as many launches "
        f"within {SAME_LAUNCHES:.0%}",
        source=OURS,
        recommendation="This is uneven work: look at what decides the size of that kernel's input "
        "(experts that get most tokens, the longer sequences of a batch), and spread it over the "
        "ranks.",
        cases={
            "machine": Case(
                scope="run",
                title="Ranks of machine {host} have {more} more to compute, in {kernels}",
                recommendation="This is uneven work: look at what decides the size of that "
                "kernel's input on these ranks (experts, sequence lengths), and spread it over the "
                "machines.",
            )
        },
        window_shows="all of that rank",
        tables=("processes", "imbalance", "rank_kernels"),
    ),
    Rule(
        "bandwidth_above_peak",
        scope="kernel",
        title="{pattern} seems to read faster than the memory can: {share}",
        threshold="above 100 % of the memory's peak bandwidth",
        source=OURS,
        recommendation="Check the bytes in the file of --weights; or the L2 cache holds these "
        "weights, and the peak of the memory is no limit.",
        tables=("bandwidth",),
    ),
    Rule(
        "bandwidth_little_headroom",
        scope="kernel",
        title="{pattern} is near the memory bandwidth: {share}",
        threshold=f"above {LITTLE_HEADROOM_PCT:g} % of the memory's peak bandwidth",
        source=OURS,
        recommendation="A better kernel gains little. Read less: quantise the weights, or read "
        "them for more tokens at once (larger batch, speculative decoding).",
        tables=("bandwidth",),
    ),
    Rule(
        "bandwidth_room",
        scope="kernel",
        title="{pattern} is far from the memory bandwidth: {share}",
        threshold=f"below {ROOM_PCT:g} % of the memory's peak bandwidth",
        source=OURS,
        recommendation="Try another kernel or its tuning (split K, vector width, fewer waves), "
        "fuse small products into one, and look at its launch configuration.",
        tables=("bandwidth",),
    ),
    Rule(
        "pageable_copies",
        scope="copy",
        title="Asynchronous copies of pageable memory run synchronously ({times})",
        threshold=_BLOCKING_WORDS,
        source="rule cuda_memcpy_async of nsys analyze; limits: this project",
        recommendation="Allocate the host side pinned (torch: pin_memory=True, and "
        "non_blocking=True on the copy), once and outside of the loop.",
        record=_COPY_CALLS,
        window_shows="the longest of them",
        tables=("blocking_memops", "devices"),
    ),
    Rule(
        "synchronous_copies",
        scope="copy",
        title="Synchronous copies block their host thread ({times})",
        threshold=_BLOCKING_WORDS,
        source="rule cuda_memcpy_sync of nsys analyze; limits: this project",
        recommendation="Use cudaMemcpyAsync with pinned memory on a stream of its own; in PyTorch "
        "look for .cpu(), .item(), .tolist() and print of a tensor in the loop.",
        record=_COPY_CALLS,
        window_shows="the longest of them",
        tables=("blocking_memops", "devices"),
    ),
    Rule(
        "synchronous_fills",
        scope="copy",
        title="Synchronous fills of host memory block their host thread ({times})",
        threshold=_BLOCKING_WORDS,
        source="rule cuda_memset_sync of nsys analyze; limits: this project",
        recommendation="Use cudaMemsetAsync, or fill host memory on the host.",
        record=_COPY_CALLS,
        window_shows="the longest of them",
        tables=("blocking_memops", "devices"),
    ),
    Rule(
        "determinism_atomics",
        scope="kernel",
        title="Some kernels may give other last bits from run to run",
        threshold=_FLAGGED,
        source=OURS,
        recommendation="Sums with atomic additions have no fixed order. Where two runs must agree, "
        "ask for the deterministic variant (torch.use_deterministic_algorithms(True); "
        "FlashAttention's deterministic=True), and expect it to be slower.",
        tables=("kernels", "rules"),
    ),
    Rule(
        "determinism_split_k",
        scope="kernel",
        title="Some kernels split the sum along K, so results follow the shape",
        threshold=_FLAGGED,
        source=OURS,
        recommendation="One shape repeats bit for bit with cuBLASLt; another batch size may split "
        "otherwise. For results that do not depend on the batch, use batch-invariant kernels "
        "(VLLM_BATCH_INVARIANT=1 in vLLM, --enable-deterministic-inference in SGLang).",
        tables=("kernels", "rules"),
    ),
    Rule(
        "determinism_cascade_merge",
        scope="kernel",
        title="Some kernels merge partial attention, so results follow batch and prefix",
        threshold=_FLAGGED,
        source=OURS,
        recommendation="Results at batch sizes 1 and 16 may differ in the last bits. To rule it "
        "out while hunting a difference: disable_cascade_attn=True in vLLM, a fixed number of KV "
        "splits elsewhere.",
        tables=("kernels", "rules"),
    ),
    Rule(
        "determinism_cublas_heuristic",
        scope="kernel",
        title="Some kernels are chosen by cuBLAS by shape, so another batch size may get another "
        "kernel",
        threshold=_FLAGGED,
        source=OURS,
        recommendation="Runs of one shape agree (CUBLAS_WORKSPACE_CONFIG=:4096:8 where several "
        "streams share a handle); between batch sizes compare the kernel names first, with "
        "trace_diff.",
        tables=("kernels", "rules"),
    ),
    Rule(
        "launch_storm",
        scope="device",
        title="Launch storm",
        threshold=f"within 100 ms: {_STORM_WORDS}",
        source=EXPLAINER,
        recommendation="Replay the step as a CUDA graph, and fuse small kernels (torch.compile, "
        "fused norm and activation kernels); each launch costs the host some microseconds.",
        tables=("launches", "kernels"),
    ),
    Rule(
        "small_graph_kernels",
        scope="device",
        title="Many small kernels inside CUDA graphs",
        threshold=f"a launch storm of which {MOSTLY_PCT:g} % are nodes of graphs",
        source=EXPLAINER,
        recommendation="Launching is paid already; fuse the small kernels (torch.compile, fused "
        "norm and activation kernels), since each still costs its ramp-up and drain.",
        tables=("launches", "kernels"),
    ),
)
