"""The rules of this recipe: title, threshold with its source, advice, what to record."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.host_words import HOST_CASES
from nsys_llm.report.price import limits_words
from nsys_llm.report.rank_findings import RULES as RANK_RULES
from nsys_llm.report.rules import EXPLAINER, OF_CLASS, OURS, Case, Rule, rules_by_id

#: Share of a GPU's time that the profiler's own work in its gaps takes, worth a remark. Below it,
#: the wall split shows it.
PROFILER_PCT: Final = 1.0
#: Share of the idle time whose launches are not recorded, from which causes say too little. The
#: complement of the coverage below which the explainer warns.
NO_API_PCT: Final = 30.0
#: Copies are missing if so many calls, and most of them, left nothing on the GPU.
COPY_CALLS: Final = 10
COPIES_SEEN_PCT: Final = 50.0

#: Causes that mean that the host came too late with the next operation, in words.
PART_WORDS: Final[Mapping[str, str]] = {
    "host_sync": "in calls that wait",
    "sync_memop": "in blocking copies",
    "host_no_cuda": "outside CUDA calls",
    "launch_api": "in launch calls",
    "other_api": "in other CUDA calls",
    "back_pressure": "in launches that wait for room",
    "launch_latency": "from launch call to start",
}

#: What is told of the longest gap, and of the costliest pattern of gaps.
GAP_FIELDS: Final = (
    "duration_ns",
    "api",
    "api_ns",
    "nvtx_range",
    "os_call",
    "os_call_ns",
    "on_core_ns",
    "after",
)
PATTERN_FIELDS: Final = ("before", "after", "gaps_n", "p50_ns", "where")
_GAP: Final = (
    "[. Longest gap: {duration_ns}][, {api_ns} in {api:quoted}][, in {nvtx_range:quoted}]"
    "[; {os_call_ns} in {os_call:quoted}][; on a core for {on_core_ns}][, before {after:quoted}]."
)
_PATTERN: Final = (
    "[. Costliest that repeats: {before:quoted} to {after:quoted}, {gaps_n} times"
    "{where}, median {p50_ns}]."
)
_OF_HOST: Final = "{lost_ns} of {span_ns}: {parts}"
_AFFECTED: Final = "[ {affected_n:rank} affected; others lose {other_ranks_median_ns}.]"
_HOST_DETAILS: Final = f"{_OF_HOST}{_GAP}{_AFFECTED}"
_DETAILS: Final = f"{{lost_ns}} of {{span_ns}}{_GAP}{_AFFECTED}"

_HOST_WORK: Final = (
    "Move what the host does there off the thread that launches, or do it while the GPU runs the "
    "step before."
)


def _idle_rule(
    rule: str, lost: str, window_shows: str | None = "the longest such gap", **texts: Any
) -> Rule:
    """Return the rule on idle time of a cause; `lost` says of which."""
    return Rule(
        rule,
        scope="device",
        threshold=f"{lost}: {limits_words()}",
        source=OURS,
        window_shows=window_shows,
        tables=("wall", "rank_causes", "gaps", "patterns", "devices"),
        specificity=OF_CLASS,
        **texts,
    )


_remark: Final = partial(Rule, kind=CAPTURE, source=OURS)

RULES: Final = rules_by_id(
    *RANK_RULES.values(),
    _remark(
        "profiler_in_gaps",
        scope="device",
        title="The profiler takes {share_pct} of rank {rank}'s time, with nothing on its GPU",
        details="{overhead_ns} on rank {rank}, counted neither as busy nor as idle."
        "[ The longest of it: {profiler_overhead_ns} of a gap of {duration_ns}.]",
        threshold=f"from {PROFILER_PCT:g} % of the time of a GPU",
        recommendation="Leave these gaps out of comparisons. A shorter capture or a larger "
        "buffer moves the flushes out of the window.",
        record="--cuda-flush-interval=0 --capture-range=cudaProfilerApi",
        tables=("devices", "gaps"),
    ),
    Rule(
        "idle_without_launch",
        kind=CAPTURE,
        scope="device",
        title="{share_pct} of the idle time has no recorded launch: its cause is unknown",
        details="{open_ns} on rank {rank} precedes operations whose API call is not recorded."
        "[ {before_capture_ns} of it is cut by the start of the capture.]",
        threshold=f"from {NO_API_PCT:g} % of the idle time of a GPU, and 1 % of its time",
        source=f"the coverage below which {EXPLAINER} warns",
        recommendation="Do not read the other causes as shares of all idle time.",
        record="--trace=cuda",
        tables=("rank_causes", "devices", "coverage"),
    ),
    _remark(
        "copies_not_traced",
        scope="rank",
        title="Most copies were not recorded: idle time is an upper bound",
        details="Of {calls_n} calls that copy or fill on rank {rank}[ ({copies_cut_n} more were "
        "queued when the capture ended)], {copies_seen_n} left an operation on the GPU."
        "[ {others_n:other rank} affected; rank {rank} is the worst.]",
        threshold=f"{COPY_CALLS} calls that copy, less than {COPIES_SEEN_PCT:g} % of them with a "
        "recorded operation",
        recommendation="Do not read gaps as idle: the GPU may have copied in them.",
        record="--trace=cuda",
        tables=("devices", "coverage"),
    ),
    _idle_rule(
        "idle_host_sync",
        title="{whose} waits in calls: {its} GPU idles {share_pct}"
        "[, {range_pct} in {host_range:quoted}]",
        details=_HOST_DETAILS,
        lost="idle time while the host is in a call that waits",
        recommendation="Find the code that reads a result back in the loop (`.item()`, `.cpu()`, "
        "sampling or stop checks on the host) and read it one step later: async scheduling in "
        "vLLM, the overlap scheduler in SGLang or TensorRT-LLM. Copy into pinned memory, and wait "
        "for an event instead of the device.",
        cases=HOST_CASES,
        record="--cudabacktrace=sync --sample=process-tree --python-backtrace=cuda",
    ),
    _idle_rule(
        "idle_sync_memop",
        title="{whose} is in blocking copies: {its} GPU idles {share_pct}"
        "[, {range_pct} in {host_range:quoted}]",
        details=_HOST_DETAILS,
        lost="idle time while the host is in a blocking copy or fill",
        recommendation="Copy asynchronously from pinned memory (`pin_memory=True`, "
        "`non_blocking=True`): the host stages pageable memory while the GPU waits. Build "
        "a step's inputs on the GPU, or send them one step ahead.",
        cases=HOST_CASES,
        record="--cudabacktrace=memory:0 --sample=process-tree",
    ),
    _idle_rule(
        "idle_alloc",
        title="Memory is allocated in the loop: rank {rank}'s GPU idles {share_pct}",
        details=_DETAILS,
        lost="idle time while the host allocates, pins or frees memory",
        recommendation="Allocate before the loop or from a pool: a preallocated KV "
        "cache and workspaces, PyTorch's caching allocator (`expandable_segments:True` against "
        "fragmentation), cudaMallocAsync with a release threshold. cudaFree and cudaHostAlloc wait "
        "for the device.",
        record="--cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
    ),
    _idle_rule(
        "idle_module_load",
        title="Code is loaded or compiled: rank {rank}'s GPU idles {share_pct}",
        details=_DETAILS,
        lost="idle time while code is loaded or compiled",
        recommendation="Warm up every shape before traffic arrives (CUDA graph sizes, Triton and "
        "torch.compile caches), or set CUDA_MODULE_LOADING=EAGER. If this is warm-up, exclude it "
        "with `--skip-warmup` or `--filter-time`.",
    ),
    _idle_rule(
        "launch_bound",
        title="{whose} launches too slowly: {its} GPU idles {share_pct} in short gaps"
        "[ between {copies}]"
        "[, {range_pct} in {host_range:quoted}]",
        details=f"{_OF_HOST}{_PATTERN}{_AFFECTED}",
        window_shows=None,
        lost="idle time while the host is late, at least half of it in gaps below 100 us",
        recommendation="Replay the step as CUDA graphs, fuse small kernels (torch.compile), or "
        "give each launch more work (larger batch, longer chunks of prefill).",
        cases=HOST_CASES,
        record="--trace=cuda,nvtx --python-sampling=true --sample=process-tree",
    ),
    _idle_rule(
        "host_work",
        title="{whose} is late: {its} GPU idles {share_pct}[, {range_pct} in {host_range:quoted}]",
        details=_HOST_DETAILS,
        lost="idle time while the host is late, more than half of it in gaps of 100 us or more",
        recommendation=_HOST_WORK,
        cases={
            **HOST_CASES,
            "stages": Case(
                title="Host gaps or a pipeline bubble: rank {rank}'s GPU idles {share_pct}",
                recommendation="The two ranks send and receive. If tail_stats says that they are "
                "stages of a pipeline, long gaps once per step are the bubble of its schedule. For "
                f"gaps that recur more often: {_HOST_WORK}",
            ),
            "calls": Case(
                title="Slow launch calls: rank {rank}'s GPU idles {share_pct}",
                recommendation="A launch this slow is held up by a driver lock (another "
                "thread allocates, polls or synchronizes), by code loading on first use, or "
                "by a thread without a core. Pin threads, and check what the other threads "
                "do at that time.",
            ),
        },
        record="--trace=cuda,nvtx,osrt,python-gil --python-sampling=true --sample=process-tree",
    ),
    _idle_rule(
        "queued_gaps",
        title="Gaps between queued kernels: {share_pct}",
        details=_DETAILS,
        lost="idle time before operations that were launched before the gap",
        recommendation="The host is ahead here, so faster launches gain less than this. Fewer, "
        "larger kernels (fusion) or programmatic dependent launch shorten these gaps. Node-level "
        "graph tracing makes them longer than they are without the profiler.",
        cases={
            "copies": Case(title="Gaps between queued {copies}: {share_pct}"),
            "long": Case(
                title="Dependencies: rank {rank}'s GPU idles {share_pct} before queued work",
                recommendation="The host is ahead here, so faster launches gain nothing. The next "
                "operation waits for an event, a host function or another GPU. Check what its "
                "stream waits for.",
            ),
        },
    ),
)
