"""The rules of this recipe: title, threshold with its source, advice, what to record.

Limits by severity are percentages unless they say otherwise, and stand highest first.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.numeric.tails import OUTLIER_RATIO, SYSTEMATIC_RATIO
from nsys_llm.report.rules import OURS, Case, Rule, limits_text, rules_by_id

#: What a tail costs, of all kernel time.
KERNEL_COST_PCT: Final = {"high": 2.0, "medium": 0.2, "low": 0.01}
#: What a host thread loses in a tail, of the window, over all ranks.
API_COST_PCT: Final = {"medium": 1.0, "low": 0.1}
#: What outliers cost, of a device's kernel time.
RANK_COST_PCT: Final = {"high": 2.0, "medium": 0.2}
#: So many bursts on the same ranks are one finding; and they are regular where the times between
#: them differ by this part of the usual one at most.
RECURS: Final = 3
REGULAR: Final = 0.5
#: Findings of one rule.
MOST: Final = 3
#: Share of a configuration's outlier time in first launches from which they are what it is.
FIRST_SHARE: Final = 0.5

#: How much longer a rank's launches are than those of the others that makes it slow; as
#: llm_hotspots has it for the time of ranks.
SLOW_RATIO: Final = {"high": 1.25, "medium": 1.10, "low": 1.05}
#: A GPU is slow where more than this share of its kernels are longer than elsewhere (a lower clock
#: leaves those alone that wait for memory).
MOST_KERNELS: Final = 0.5
#: Fewer outliers say nothing about where they are.
LEAST_OUTLIERS: Final = 10
#: Share of all outliers on one device, in percent, and by how much it exceeds its share of the
#: launches, that is no accident.
CONCENTRATED_PCT: Final = 50.0
CONCENTRATED_RATIO: Final = 1.6

#: What waiting for one rank costs, of the other ranks' time; less is not worth a line.
WAIT_PCT: Final = {"high": 5.0, "medium": 1.0, "low": 0.1}
#: Communication kernels that found no partner, from which the waits say too little.
UNMATCHED_PCT: Final = 10.0
#: Share of a communicator's time in transfer from which its amount is what to look at.
TRANSFER_PCT: Final = 10.0
#: Share of the window that is bubble.
BUBBLE_PCT: Final = {"medium": 10.0, "low": 3.0, "note": 0.0}
#: A stage's GPU is idle so much longer than the stages beside it say, in percent of the window,
#: that its host is late. Without a late host it is less than 1.
LATE_STAGE_PCT: Final = {"high": 10.0, "medium": 3.0}
#: A stage computes so many times longer than the median of the others: llm_hotspots' slow rank.
SLOW_STAGE_RATIO: Final = {"high": 1.25, "medium": 1.10}

#: What a finding on bursts says that recur on the same ranks.
BURSTS_TITLE: Final = "{bursts} of outliers on {where}{when}"
REGULAR_ADVICE: Final = (
    "What comes again and again at the same distance belongs to a step or to a timer. {advice}"
)

_CLOCKS: Final = "--gpu-metrics-device=all"
_LATE: Final = f"it caused waiting of: {limits_text(WAIT_PCT)} of the others' time"
_API_COST: Final = f"{limits_text(API_COST_PCT)} of the windows of all ranks"
_STRAGGLER_TITLE: Final = "Rank {rank} makes the other ranks of {communicator} wait {when}{cause}"
_STRAGGLER_ADVICE: Final = (
    "Look at rank {rank} before its collectives, not at the ranks that spend most time in them: "
    "{look}."
)
_STRAGGLER_TABLES: Final = ("stragglers", "collectives", "wait_map", "tail_ranks", "rank_tails")
_OUTLIERS: Final = f"launches longer than {OUTLIER_RATIO:g} times the median of their configuration"
_TAIL: Final = f"{_OUTLIERS} cost: {limits_text(KERNEL_COST_PCT)} of all kernel time"
_BESIDE: Final = Case(
    recommendation="It slows down when something runs beside it: move the copies or kernels of "
    "`outliers.beside` to another time, or give them fewer SMs, and see whether the tail goes."
)

RULES: Final = rules_by_id(
    Rule(
        "slow_first_call",
        scope="api",
        title="The first {api} takes {duration}",
        threshold="a note where first calls beyond the median of later ones take "
        f"{API_COST_PCT['low']:g} % of the windows of all ranks",
        source=OURS,
        recommendation="The first calls make the context and load libraries. Leave them out of "
        "what is measured: --filter-time from later on, or --skip-warmup.",
        tables=("rank_api_tails",),
    ),
    Rule(
        "kernel_loading",
        scope="api",
        title="First launches of kernels hold the host for {lost}",
        threshold=f"first launches of kernels beyond later ones: {_API_COST}",
        source=OURS,
        recommendation="The driver loads a kernel's code when it is first launched. Run every "
        "shape once before serving or timing, or load all at the start with "
        "CUDA_MODULE_LOADING=EAGER.",
        tables=("api_tails", "rank_api_tails"),
    ),
    Rule(
        "shared_skew",
        scope="run",
        title="Ranks {communicator} wait for each other in turn",
        threshold=f"no rank stands out; waiting takes: high from {WAIT_PCT['high']:g} %, medium "
        f"from {WAIT_PCT['medium']:g} % of the ranks' time",
        source=OURS,
        recommendation="Look for what varies from step to step on every rank: sequence lengths, "
        "routing of experts, garbage collection, host threads that share cores. Fewer and larger "
        "collectives meet less often.",
        tables=("stragglers", "communicators"),
    ),
    Rule(
        "clocks_too_uncertain",
        scope="run",
        title="Who is late among ranks {communicator} cannot be told",
        threshold="a note where most latenesses of a rank are below what the clocks agree to",
        source=OURS,
        recommendation="Take waits below that as noise, and name no rank. One nsys for all ranks "
        "of a host gives them one clock.",
        tables=("stragglers", "rank_clocks"),
    ),
    Rule(
        "transfer_bound_collectives",
        scope="kernel",
        title="{operation} of {where} is transfer, not waiting",
        threshold=f"transfer from {TRANSFER_PCT:g} % of the time from the first to the last of "
        "them",
        source=OURS,
        recommendation="Send less (types, sharding, fusion), overlap it with computation, or see "
        "whether NCCL took the fast links (`NCCL_DEBUG=INFO`).",
        tables=("communicators",),
    ),
    Rule(
        "unmatched_collectives",
        scope="run",
        title="{share} of the communication kernels found no partner on another rank",
        threshold=f"from {UNMATCHED_PCT:g} % of the communication kernels, on two devices or more",
        source=OURS,
        recommendation="See that all ranks of the job are among the inputs and were captured at "
        "the same time, with the same --capture-range or --delay and --duration; kernels that do "
        "not wait for their peer cannot be matched by time.",
        tables=("collective_coverage",),
    ),
    Rule(
        "slow_first_launches",
        scope="kernel",
        title="First launches of {configurations} take more than twice the median of later ones",
        threshold=f"first launches longer than {OUTLIER_RATIO:g} times the median cost: "
        f"{limits_text(KERNEL_COST_PCT)} of all kernel time; medium at most",
        source=OURS,
        recommendation="Leave the start out of measurements (--skip-warmup, or --filter-time from "
        "later on), and run each shape once before the server takes requests.",
        tables=("rank_tails",),
    ),
    Rule(
        "hidden_tails",
        scope="kernel",
        title="{configurations} with a tail {take} less than 1 % of the kernel time{each}",
        threshold="a tail in a configuration with less than 1 % of the kernel time",
        source=OURS,
        recommendation="A cheap kernel that now and then takes long delays everything behind it on "
        "its stream: look in `outliers` at when its slow launches are.",
        tables=("tails",),
    ),
    Rule(
        "pipeline_bubble",
        scope="run",
        title="Pipeline of {stages_n} stages: its bubble is {share} of the window",
        threshold=f"{limits_text(BUBBLE_PCT)} of the stages' windows",
        source=OURS,
        recommendation="Waiting between stages is part of the schedule. More microbatches per step "
        "shrink it (1F1B: (stages - 1) / (microbatches + stages - 1) of a step), and so do "
        "interleaved stages (several model chunks per rank).",
        tables=("communicators", "collectives", "tail_ranks"),
    ),
    Rule(
        "late_stage",
        scope="rank",
        title="The host of stage rank {rank} launches late: its GPU is idle {more} longer than the "
        "schedule leaves it",
        threshold=f"idle beyond what the stages beside it say: {limits_text(LATE_STAGE_PCT)} of "
        "the window, of three stages or more",
        source=OURS,
        recommendation="See in idle_gaps what the host of rank {rank} does meanwhile: cores shared "
        "with other threads, data loading, garbage collection, synchronization. The other stages "
        "wait for it, beyond the bubble of the schedule.",
        tables=("tail_ranks",),
    ),
    Rule(
        "slow_stage",
        scope="rank",
        title="The stage of rank {rank} computes {more} longer than the {others} and sets the pace "
        "of the pipeline",
        threshold="compute over the median of the other stages: "
        f"{limits_text(SLOW_STAGE_RATIO, ' times')}",
        source=OURS,
        recommendation="As many launches as elsewhere: compare clocks and power of that GPU. More "
        "launches: move layers to other stages (embedding and output layers count).",
        record=_CLOCKS,
        tables=("tail_ranks", "stragglers"),
    ),
    Rule(
        "profiler_wait",
        scope="rank",
        title="The profiler makes rank {rank} late: {waiting} of waiting",
        threshold=f"a note from {WAIT_PCT['low']:g} % of the others' time, on a rank that is no "
        "straggler otherwise",
        source=OURS,
        recommendation="An unprofiled run does not have it: look for no cause in the program. "
        "Shorter captures and fewer traced APIs make the profiler's pauses rarer.",
        tables=("stragglers", "collectives"),
    ),
    Rule(
        "slow_throughout",
        scope="device",
        title="Rank {rank} is slower throughout: its medians are {more} above those of the other "
        "ranks",
        threshold="medians over those of the other ranks in the same configurations: "
        f"{limits_text(SLOW_RATIO, ' times')}; in more than {MOST_KERNELS:.0%} of its kernels",
        source=OURS,
        recommendation="This is no tail but a slow GPU, or more work in the same configurations. "
        "Compare its clock, power limit and temperature with the others (nvidia-smi -q -d "
        "CLOCK,PERFORMANCE), and look for another process on it.",
        record=_CLOCKS,
        tables=("tail_ranks", "rank_tails"),
    ),
    Rule(
        "uneven_work",
        scope="kernel",
        title="Rank {rank} has more work than the others in {kernels}",
        threshold=f"as slow_throughout, in {MOST_KERNELS:.0%} of its kernels or fewer",
        source=OURS,
        recommendation="Look at what decides how much this kernel has to do (experts that get most "
        "tokens, the longer sequences of a batch), and spread it over the ranks.",
        tables=("rank_tails", "tail_ranks"),
    ),
    Rule(
        "outliers_on_one_rank",
        scope="device",
        title="Rank {rank} has {share} of all outliers",
        threshold=f"from {LEAST_OUTLIERS} outliers, {CONCENTRATED_PCT:g} % of them on one device "
        f"and {CONCENTRATED_RATIO:g} times its share of the launches; {limits_text(RANK_COST_PCT)} "
        "of its kernel time, low below",
        source=OURS,
        recommendation="Its usual launches are as fast as elsewhere, so something disturbs this "
        "GPU now and then: another process, copies, a clock that drops under load, or uneven work "
        "such as hot experts. `outliers` says what ran beside.",
        record=_CLOCKS,
        tables=("tail_ranks", "outliers"),
    ),
    Rule(
        "two_kinds_of_work",
        scope="kernel",
        title="{kernel} does two kinds of work in one configuration",
        threshold="a note where outliers are a mode of their own, with nothing between them and "
        "the rest",
        source=OURS,
        recommendation="Read it as two shapes, not as a tail: persistent kernels launch as many "
        "blocks as the GPU holds whatever the size of the work, and attention works longer in "
        "prefill. NVTX ranges around the layers tell the two apart.",
        tables=("tails", "tail_durations", "outliers"),
    ),
    Rule(
        "shape_mix",
        scope="kernel",
        title="{kernel} is a mix of shapes, not a tail",
        threshold=f"a note where pooled durations look like a tail (max above {OUTLIER_RATIO:g}, "
        f"p99 above {SYSTEMATIC_RATIO:g} times the median) and no configuration has one",
        source=OURS,
        recommendation="Compare durations within one configuration. The pooled percentiles say how "
        "often each shape runs.",
        tables=("tails",),
    ),
    Rule(
        "api_tail",
        scope="api",
        title="{api} takes up to {longest}, {times} times its median",
        threshold=f"calls longer than {OUTLIER_RATIO:g} times the median lose: {_API_COST}",
        source=OURS,
        recommendation="See in the timeline what the other threads and the GPU do during the "
        "longest of these calls.",
        cases={
            "alloc": Case(
                recommendation="Allocate once and keep it: a caching allocator, cudaMallocAsync "
                "with a memory pool that keeps its memory (cudaMemPoolAttrReleaseThreshold), "
                "buffers that fit the largest batch."
            ),
            "free": Case(
                recommendation="Freeing may wait for the GPU: keep buffers, or free them in stream "
                "order (cudaFreeAsync)."
            ),
            "launch": Case(
                recommendation="A launch takes long when the launch queue is full, or when another "
                "thread holds the lock of the context: see what the GPU and the other threads do "
                "at that time. CUDA graphs need fewer launches."
            ),
            "graph_launch": Case(
                recommendation="The first launches of a graph upload it (cudaGraphUpload does so "
                "before); later ones wait while an earlier launch of the same graph still runs."
            ),
            "memcpy": Case(
                recommendation="Asynchronous copies from or to pageable memory are staged by the "
                "host: pin the memory."
            ),
        },
        record="--cudabacktrace=all:100000 --sample=process-tree",
        tables=("api_tails", "rank_api_tails"),
    ),
    Rule(
        "api_wait_tail",
        scope="api",
        title="{api} takes up to {longest}, {times} times its median",
        threshold="as api_tail, of calls that wait; low at most",
        source=OURS,
        recommendation="Its duration is that of what it waits for: see which kernel or copy ends "
        "the longest wait, and whether the host could have queued the next work before.",
        tables=("api_tails", "rank_api_tails"),
    ),
    Rule(
        "persistent_straggler",
        scope="rank",
        title=_STRAGGLER_TITLE,
        threshold=f"late throughout the run (table `stragglers`); {_LATE}",
        source=OURS,
        recommendation=_STRAGGLER_ADVICE,
        tables=_STRAGGLER_TABLES,
    ),
    Rule(
        "transient_straggler",
        scope="rank",
        title=_STRAGGLER_TITLE,
        threshold=f"late for a part of the run (table `stragglers`); {_LATE}",
        source=OURS,
        recommendation=_STRAGGLER_ADVICE,
        record=_CLOCKS,
        tables=_STRAGGLER_TABLES,
    ),
    Rule(
        "systematic_tail",
        scope="kernel",
        title="{kernel} keeps having launches of up to {times} times its median",
        threshold=f"p99 above {SYSTEMATIC_RATIO:g} times the median, in 100 launches or more; "
        f"{_TAIL}",
        source=OURS,
        recommendation="So many of one configuration point at different amounts of work: lengths "
        "of sequences, tokens of an expert, the phase in which the long launches are "
        "(`outliers.range`). Compare durations within one of them.",
        cases={"beside": _BESIDE},
        record="--trace=cuda,nvtx",
        tables=("tails", "rank_tails", "outliers"),
    ),
    Rule(
        "rare_outliers",
        scope="kernel",
        title="{kernel} has launches of up to {times} times its median",
        threshold=_TAIL,
        source=OURS,
        recommendation="Look at the launches in `outliers` at their time in the timeline: the "
        "clock of the GPU, another process on it, or data that only these launches have.",
        cases={"beside": _BESIDE},
        record="--trace=cuda,nvtx",
        tables=("tails", "rank_tails", "outliers"),
    ),
    Rule(
        "outlier_cluster",
        scope="rank",
        title="{outliers} on {where} within {duration}",
        threshold="more outliers within a short time than chance gives (table `outlier_clusters`); "
        f"{limits_text(RANK_COST_PCT)} of the kernel time, low below",
        source=OURS,
        recommendation="Something held the GPU up for a moment: look in that window for a clock "
        "that drops, another process on the GPU, or a step with other work.",
        cases={
            "beside": Case(
                recommendation="Look at what runs beside them in that window; move it, or limit it."
            )
        },
        record=_CLOCKS,
        tables=("outlier_clusters", "outliers"),
    ),
)
