"""The rules of this recipe: title, threshold with its source, advice, what to record.

Limits by severity are percentages of the window, and stand highest first.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.rules import EXPLAINER, OURS, Case, Rule, limits_text, rules_by_id
from nsys_llm.view.text import format_ns

#: The explainer reports idle time of all causes together: medium from 20 %, high from 40 %. Here a
#: cause stands for itself: half of that is high, and a quarter medium. nsys-ai 0.3.0 takes a change
#: of less than 2 % between two runs for noise: nobody could show the gain.
IDLE_PCT: Final = {"high": 20.0, "medium": 5.0, "low": 2.0}
#: A call that need not be there is worth a line before its cost is; ours.
AVOIDABLE_PCT: Final = {**IDLE_PCT, "note": 0.3}
#: Idle time of all ranks together that is worth a word; as much as the explainer asks of
#: synchronisation, in ns.
LEAST_NS: Final = 1_000_000
#: The profiler's own work in the gaps of one device, from which it is told, in ns: a long gap of
#: its own.
PROFILER_NS: Final = 100_000
#: Share of the idle time whose launches are not recorded, from which causes say too little. The
#: complement of the coverage below which the explainer warns.
NO_API_PCT: Final = 30.0
#: Copies are missing if so many calls, and most of them, left nothing on the GPU.
COPY_CALLS: Final = 10
COPIES_SEEN_PCT: Final = 50.0
#: Percentage points of the window above the median rank; ranks that do the same differ by less.
MORE_IDLE_POINTS: Final = 5.0
#: Idle intervals in a clock as exact as NTP (1 to tens of ms between hosts) mean something from
#: here on.
NTP_NS: Final = 10_000_000
#: A state that ranks share is no accident from this part on of what there could be beyond chance,
#: and only where it is beyond all that turned ranks had.
TIED_SHARE: Final = 0.25

#: What goes before the advice where two ranks may be stages of a pipeline.
BY_SCHEDULE: Final = (
    "The two ranks send and receive. If tail_stats says that they are stages of a pipeline, long "
    "gaps once a step are the bubble of its schedule. Of what recurs more often: {advice}"
)

_HOST: Final = "--trace=cuda,nvtx,osrt,python-gil --sample=process-tree --python-sampling=true"
_HOST_WORK: Final = (
    "The host schedules, tokenises, loads data or waits for another process. Move that off the "
    "thread that launches, or do it while the GPU runs the step before (async scheduling, more "
    "data loader workers, prefetch)."
)
_SOURCE: Final = f"half (high) and a quarter (medium) of the idle time that {EXPLAINER} calls high"
_IDLE: Final = f"idle {{}}: at least {format_ns(LEAST_NS)}; {limits_text(IDLE_PCT)} of the window"
_AVOIDABLE: Final = (
    f"idle {{}}: at least {format_ns(LEAST_NS)}; {limits_text(AVOIDABLE_PCT)} of the window"
)
_TABLES: Final = ("rank_causes", "causes", "gaps", "patterns", "devices")
_SHARED: Final = (
    f"{limits_text(IDLE_PCT)} of the time, {TIED_SHARE:.0%} of what there could be beyond chance, "
    "and more than ranks have whose times are shifted against each other"
)

RULES: Final = rules_by_id(
    Rule(
        "profiler_in_gaps",
        scope="device",
        title="Some gaps are the profiler's own work",
        threshold=f"a note from {format_ns(PROFILER_NS)} in the gaps of one device",
        source=OURS,
        recommendation="Leave these gaps out of any comparison. A shorter capture, or a larger "
        "buffer, moves the flushes out of the window.",
        record="--cuda-flush-interval=0 --capture-range=cudaProfilerApi",
        tables=("devices", "gaps"),
    ),
    Rule(
        "idle_without_launch",
        scope="rank",
        title="Nothing is known of the cause of {share} of the idle time",
        threshold=f"a note from {NO_API_PCT:g} % of the idle time",
        source=f"the coverage below which {EXPLAINER} warns",
        recommendation="Do not read the other causes as shares of the whole.",
        record="--trace=cuda,nvtx",
        tables=("cause_sums", "devices", "coverage"),
    ),
    Rule(
        "graphs_cut_at_end",
        scope="rank",
        title="Idle time is not known on {ranks}: graphs were running when the capture ended",
        threshold="medium where all graphs without GPU work were cut by the end of the capture",
        source=OURS,
        recommendation="Leave out --whole-capture, or end --filter-time with the last operation: "
        "up to there the idle time is known.",
        tables=("devices", "coverage"),
    ),
    Rule(
        "copies_not_traced",
        scope="rank",
        title="Most copies are not in the report: idle time is an upper bound",
        threshold=f"{COPY_CALLS} calls that copy, of which less than {COPIES_SEEN_PCT:g} % left an "
        "operation",
        source=OURS,
        recommendation="Do not read gaps as idle: a GPU may have copied in them.",
        record="--trace=cuda",
        tables=("devices", "coverage"),
    ),
    Rule(
        "idle_imbalance",
        scope="rank",
        title="Rank {rank} is idle more than the others",
        threshold=f"{MORE_IDLE_POINTS:g} points of the window above the median of the others; "
        "severity as idle time, low below",
        source=OURS,
        recommendation="If it has less to compute than the others, its share of the work is too "
        "small; if its host is late, look at its cores, its data, and what else runs on that "
        "machine.",
        tables=("devices", "rank_causes"),
    ),
    Rule(
        "standstill",
        scope="run",
        title="All ranks stand still at once for {share} of the time",
        threshold=_SHARED,
        source=OURS,
        recommendation="What stops all ranks together is shared: the scheduler, the data loader, a "
        "barrier on the host, a checkpoint. Let it run ahead of the step (async scheduling, "
        "prefetch).",
        tables=("common_idle", "common_gaps"),
    ),
    Rule(
        "late_rank",
        scope="rank",
        title="All other ranks are idle while rank {rank} works",
        threshold=f"of three ranks or more: {_SHARED}",
        source=OURS,
        recommendation="This rank has work of its own that the others wait for (sampling, logits, "
        "a pipeline stage): share it out, or overlap it with the next step.",
        tables=("common_idle", "common_gaps"),
    ),
    Rule(
        "idle_host_sync",
        scope="device",
        title="The GPU stands still while the host waits for it and then launches anew",
        threshold=_AVOIDABLE.format("before which the host waited"),
        source=_SOURCE,
        recommendation="Find what reads a result back in the loop (`.item()`, `.cpu()`, sampling "
        "or stop checks on the host) and read it one step later: async scheduling in vLLM, the "
        "overlap scheduler in SGLang or TensorRT-LLM. Copy into pinned memory, and wait for an "
        "event and not for the device.",
        record="--cudabacktrace=sync --sample=process-tree --python-backtrace=cuda",
        tables=_TABLES,
    ),
    Rule(
        "idle_sync_memop",
        scope="device",
        title="Blocking copies or fills keep the GPU idle",
        threshold=_AVOIDABLE.format("in blocking copies or fills"),
        source=_SOURCE,
        recommendation="Copy from pinned memory with the Async form (`pin_memory=True`, "
        "`non_blocking=True`): pageable memory is staged by the host while the GPU waits. Build "
        "the inputs of a step on the GPU, or send them one step ahead.",
        record="--cudabacktrace=memory:0 --sample=process-tree",
        tables=_TABLES,
    ),
    Rule(
        "idle_alloc",
        scope="device",
        title="Memory is allocated or freed while the GPU is idle",
        threshold=_AVOIDABLE.format("in allocation or freeing"),
        source=_SOURCE,
        recommendation="Allocate before the loop or from a pool: a preallocated KV cache and "
        "workspaces, PyTorch's caching allocator (`expandable_segments:True` against "
        "fragmentation), cudaMallocAsync with a release threshold. cudaFree and cudaHostAlloc wait "
        "for the device.",
        record="--cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
        tables=_TABLES,
    ),
    Rule(
        "idle_module_load",
        scope="device",
        title="Code is loaded or compiled while the GPU is idle",
        threshold=_AVOIDABLE.format("in loading or compiling code"),
        source=_SOURCE,
        recommendation="Warm up every shape before traffic comes (CUDA graph sizes, Triton and "
        "torch.compile caches), or set CUDA_MODULE_LOADING=EAGER. If it is warm-up, leave it out "
        "with `--skip-warmup` or `--filter-time`.",
        tables=_TABLES,
    ),
    Rule(
        "idle_back_pressure",
        scope="device",
        title="Launches wait for room in the launch queue while the GPU is idle",
        threshold=_IDLE.format("in launches that wait for room"),
        source=_SOURCE,
        recommendation="Work on another stream or device holds the queue: look at what is in "
        "front, and launch fewer, larger pieces (CUDA graphs).",
        tables=_TABLES,
    ),
    Rule(
        "launch_bound",
        scope="device",
        title="Short gaps add up in which the GPU waits for the next launch",
        threshold=_IDLE.format("in short gaps before a launch"),
        source=_SOURCE,
        recommendation="Replay the step as CUDA graphs (no `--enforce-eager`, batch sizes in the "
        "captured list), fuse small kernels (torch.compile), or give each launch more work (larger "
        "batch, longer chunks of prefill).",
        record="--trace=cuda,nvtx --python-sampling=true --sample=process-tree",
        tables=_TABLES,
    ),
    Rule(
        "queued_gaps",
        scope="device",
        title="Idle time between operations that were launched long before",
        threshold=_IDLE.format("before operations that were queued"),
        source=_SOURCE,
        recommendation="The host is ahead here. Short gaps are the GPU's own way from one kernel "
        "to the next, and larger with node-level graph tracing: fewer, larger kernels (fusion, "
        "programmatic dependent launch) shorten it. Long ones wait for an event, a host function "
        "or another GPU.",
        tables=_TABLES,
    ),
    Rule(
        "host_work",
        scope="device",
        title="The GPU waits for the host, which is in no CUDA call",
        threshold=_IDLE.format("in long gaps without a CUDA call"),
        source=_SOURCE,
        recommendation=_HOST_WORK,
        cases={
            "stages": Case(
                title="Stages of a pipeline are idle while their hosts launch nothing",
                recommendation="The ranks send and receive as pipeline stages do: without its "
                "input, a stage has nothing to run. See the bubble in tail_stats first (more "
                f"microbatches, interleaved stages). What is beyond that: {_HOST_WORK}",
            )
        },
        record=_HOST,
        tables=_TABLES,
    ),
    Rule(
        "slow_launches",
        scope="device",
        title="Long gaps pass inside calls that launch work, or between launch and execution",
        threshold=_IDLE.format("in long gaps in or behind launch calls"),
        source=_SOURCE,
        recommendation="A launch this slow is held up by a lock of the driver (another thread that "
        "allocates, polls or synchronises), by loading code on first use, or by a host thread "
        "without a core: pin threads, and look at the other threads there.",
        record=_HOST,
        tables=_TABLES,
    ),
)
