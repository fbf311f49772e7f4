"""The rules of this recipe: title, threshold with its source, advice, what to record."""

from __future__ import annotations

from typing import Final

from nsys_llm.job.collectives.experts import UNEVEN
from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import LIMITS_PCT
from nsys_llm.report.rank_findings import STAGE_RULES
from nsys_llm.report.rules import OF_CLASS, OF_KERNEL, OURS, Case, Rule, rules_by_id

#: Of a link's peak, in percent, over at least so many collectives that move so much on average:
#: at 16 MiB healthy links carry less than half.
SLOW_PCT: Final = 50.0
LEAST_COLLECTIVES: Final = 20
LEAST_LINK_BYTES: Final = 64 << 20
#: A group whose transfers take so many times those of its twins is slow.
SLOW_TIMES: Final = 1.25
#: Stages whose partners are not known: which cases there are, and from what compute beyond the
#: median of the others one is heavier, in percent.
ALIKE: Final = "alike"
HEAVIER: Final = "heavier"
LEAST_HEAVIER_PCT: Final = 5.0
#: Messages of a step that are smaller than this.
SMALL_A_STEP: Final = 100
MOST_SMALL_BYTES: Final = 64 << 10

RULES: Final = rules_by_id(
    *STAGE_RULES.values(),
    Rule(
        "pipeline_bubble",
        scope="run",
        title="Pipeline of {stages_n} stages{kind}: bubble {at_least}{bubble_pct}",
        details="Bubble {at_least}{bubble_pct}[, of which the schedule takes {schedule_pct}]. A "
        "stage computes for {least_ns} to {most_ns} of {step_ns}. Stage {stage} (rank {rank}) "
        "computes most and has a bubble of {is_least}{bubble_ns}.",
        cases={
            "several": Case(
                title="{pipelines_n} pipelines of {stages_n} stages{kind}: bubble {at_least}"
                "{bubble_pct} in the one that loses most"
            )
        },
        threshold="stages of a pipeline that wait for each other, or are idle through no fault of "
        "their host; the gain is half of the bubble of the stage that computes most; shown from "
        f"{LIMITS_PCT['low']:g} % of the GPU's span",
        source=OURS,
        recommendation="Use twice as many microbatches, or model chunks per rank (interleaved "
        "stages): the schedule's part of the bubble halves.",
        tables=("bubbles", "stages"),
        specificity=OF_CLASS,
    ),
    Rule(
        "unplaced_pipeline",
        scope="run",
        title="Pipeline bubble about {wait_pct}: all stages compute alike",
        details="Of the time of all ranks {wait_pct} is waiting in sends and receives. Which "
        "rank sends to which is unknown, because stages in lockstep can be paired in several ways.",
        threshold="no pipeline is found, and at most 20 % of the sends and receives of three or "
        "more GPUs are matched (with certainty, if their counts are those of a chain); a stage is "
        f"heavier from {LEAST_HEAVIER_PCT:g} % beyond the median of the others; the gain is half "
        "of the bubble, or what even stages would gain at the number of microbatches that the "
        "bubble implies",
        source=OURS,
        recommendation="Use twice as many microbatches, or model chunks per rank (interleaved "
        "stages): the schedule's part of the bubble halves.",
        cases={
            ALIKE: Case(
                title="{wait_pct} of the time is waiting in sends and receives: all ranks compute "
                "alike",
            ),
            HEAVIER: Case(
                title="{which} is heavier: {heaviest} {compute} {heavy_pct} of a step, the others "
                "{others_pct}; all ranks wait {wait_pct}",
                recommendation="Move layers to other stages, so that all compute equally long.",
            ),
        },
        tables=("exchanges",),
        specificity=OF_KERNEL,
    ),
    Rule(
        "experts",
        scope="run",
        title="Experts get uneven numbers of tokens, another rank most each time: {waiting_pct} "
        "of all waiting",
        details="Between {instances_n:dispatch and combine|dispatches and combines} the slowest "
        "rank computes {longer_pct} longer than the mean one. It arrives {late_ns} after the mean "
        "rank, which causes {waiting_pct} of all waiting for other GPUs.",
        threshold="between dispatch and combine the slowest rank computes "
        f"{UNEVEN:g} times as long as the mean one; the gain is how much later the last "
        "rank comes than the mean one, where its expert kernels explain half of it",
        source=OURS,
        recommendation="Placing experts elsewhere (EPLB) does not help: another rank is the "
        "slowest each time. Even the number of tokens: an auxiliary loss or a capacity limit.",
        cases={
            "one_rank": Case(
                title="Experts on rank {hot} get most tokens",
                recommendation="Place its hot experts on other ranks, or copy them (EPLB).",
            ),
            "by_layer": Case(
                title="Experts get uneven numbers of tokens, in each layer on the same rank: "
                "{waiting_pct} of all waiting",
                recommendation="Place the hot experts of each layer on other ranks, or copy them "
                "(EPLB).",
            ),
        },
        tables=("experts",),
        specificity=OF_CLASS,
    ),
    Rule(
        "slow_link",
        scope="run",
        title="The links between ranks {ranks} carry {peak_pct} of what they can",
        details="{busbw_gb_s} of {peak_gb_s} in {sized_n} of {operation}, {bucket} each. "
        "{exposed_ns} of their transfer is exposed.",
        threshold=f"bus bandwidth below {SLOW_PCT:g} % of the peak, over {LEAST_COLLECTIVES} "
        f"collectives or more that move {LEAST_LINK_BYTES >> 20} MiB on average; the gain is the "
        "exposed transfer beyond the peak, on the rank with most of it",
        source=OURS,
        recommendation="Check the topology of NVLink and network cards (nvidia-smi topo -m), "
        "NCCL_ALGO, and how many channels NCCL uses (`channels_n`).",
        tables=("message_sizes", "transfers"),
        specificity=OF_KERNEL,
    ),
    Rule(
        "slow_group",
        scope="run",
        title="Transfers of ranks {ranks} take {times:.1f} times those of ranks {twins}"
        "[ (link, NIC or switch of {machine})]",
        details="Compared with like collectives, over {collectives_n}. Of {exposed_ns} of exposed "
        "transfer, {lost_ns} would disappear.",
        threshold=f"from {SLOW_TIMES:g} times the median transfer of collectives of the same "
        "operation, kernel, size and channels, in groups of the same axis, size, number of "
        f"machines and part of the model, over at least {LEAST_COLLECTIVES}; the gain is its "
        "exposed transfer beyond that median",
        source=OURS,
        recommendation="Compare its links, network cards and switch ports with those of the other "
        "ranks (nvidia-smi nvlink --status, ibstat), and check which ones NCCL chose "
        "(NCCL_DEBUG=INFO).",
        tables=("groups", "message_sizes"),
        specificity=OF_KERNEL,
    ),
    Rule(
        "implausible_sizes",
        kind=CAPTURE,
        scope="run",
        title="Sizes of {sizes_n:collective} do not fit their time: the largest is {largest_bytes}",
        details="No link of these GPUs could carry as much while all ranks are in the collective. "
        "These collectives have no bandwidth and enter no average.",
        threshold="above the NVLink of the GPU or --link-bandwidth, of other GPUs above 2 TB/s",
        source=OURS,
        recommendation="Compare `bytes` in `transfers` with what the program sends. The payloads "
        "may have been misread, or most was sent before the last rank arrived.",
        tables=("transfers",),
    ),
    Rule(
        "small_messages",
        scope="run",
        title="Many small messages between ranks {ranks}: {operation} below 64 KiB",
        details="{exposed_ns} of the transfer of {sized_n} of {operation} is exposed. A step has "
        "{a_step_n} of them. At the speed of the largest ones they would take {fused_ns} in all.",
        threshold=f"from {SMALL_A_STEP} a step below {MOST_SMALL_BYTES >> 10} KiB, in a group that "
        "cannot be tensor parallel; the gain is their exposed transfer beyond the time at the "
        "speed of the largest ones",
        source=OURS,
        recommendation="Fuse them, or use larger buckets.",
        tables=("message_sizes", "transfers"),
        specificity=OF_CLASS,
    ),
)
