"""The rules of this recipe: title, threshold with its source, advice, what to record.

Severities follow from the gain (see `nsys_llm.report.price`), so thresholds say only when a rule
applies.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.numeric.tails import OUTLIER_RATIO
from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import LIMITS_PCT
from nsys_llm.report.rank_findings import RULES as RANK_RULES
from nsys_llm.report.rules import OF_KERNEL, OURS, Case, Rule, rules_by_id
from nsys_llm.taxonomy.wall_classes import EXPERTS
from nsys_llm.view.text import format_ns

#: Cases of waiting: who waits is constantly faster; the same rank comes last.
FAST: Final = "fast"
SAME: Final = "same"
#: Findings of one rule.
MOST: Final = 3

#: Time in collectives before all profiles record that is worth a line; a trifle of any capture.
LEFT_OUT_NS: Final = 1_000_000
#: Communication kernels that found no partner, from which the waits say too little.
UNMATCHED_PCT: Final = 10.0

_SHOWN: Final = f"shown from {LIMITS_PCT['low']:g} % of the GPU's span"

RULES: Final = rules_by_id(
    *RANK_RULES.values(),
    Rule(
        "collective_waits",
        scope="rank",
        title="Waiting without a straggler: rank {rank} waits {waiting_ns} in {waited_n} "
        "{operations}",
        details="Among ranks {communicator:quoted}, none has a verdict, and which rank comes last "
        "varies.[ {suffered_profiler_ns} more is due to the profiler's own work.]",
        threshold="waiting in the collectives of a communicator in which no rank is late beyond "
        "chance, on the rank that waits longest, without waiting caused by the profiler; "
        f"{_SHOWN}",
        source=OURS,
        recommendation="Look for work that varies between ranks from step to step: sequence "
        "lengths, expert routing, host threads that share cores, garbage collection. Use fewer, "
        "larger collectives, so that ranks synchronize less often.",
        cases={
            FAST: Case(
                title="Rank {rank} waits {waiting_ns} in {waited_n} {operations}: its compute is "
                "shorter than its peers' ({more_pct:change})",
                details="Among ranks {communicator:quoted} it is always the faster one."
                "[ {suffered_profiler_ns} more is due to the profiler's own work.]",
                recommendation="The others set the pace. Compare the GPUs, their clocks and power "
                "limits, and the work of each rank.",
            ),
            SAME: Case(
                title="Rank {rank} waits {waiting_ns} in {waited_n} {operations}, most often for "
                "rank {last}",
                details="Of ranks {communicator:quoted}, rank {last} comes last in {late_n} of "
                "{collectives_n}."
                "[ {suffered_profiler_ns} more is due to the profiler's own work.]",
                recommendation="The cause is unknown. Compare its computation, its host and its "
                "other streams before these collectives with those of the others.",
            ),
            EXPERTS: Case(
                title="Rank {rank} waits {waiting_ns} in {waited_n} {operations}, most of it for "
                "uneven experts",
                recommendation="`comm_stats` shows which ranks hold the hot experts of which "
                "layers, and how much even experts would gain.",
            ),
        },
        tables=("stragglers", "collectives"),
    ),
    Rule(
        "outlier_cluster",
        scope="rank",
        title="{outliers_n:launch|launches} over twice their median on {where} within {lasting_ns}"
        "[, {more}]",
        details="Chance would put {expected:.2g} there. They belong to {kernels_n:kernel}, most "
        "to {kernel:quoted}[ (ranks {together:quoted})]. Likely cause of most: {likely_cause}. "
        "From {window_start_ns:instant} to {window_end_ns:instant} in the profile of rank {rank}, "
        "which loses {lost_ns} beyond the medians.",
        threshold="more of them in a short time than chance explains (table `outlier_clusters`); "
        f"the gain is their time beyond the medians on the GPU that loses most; {_SHOWN}",
        source=OURS,
        recommendation="Something slowed the GPU down for a moment. Check its clocks, "
        "temperature, power and other processes in that time.",
        cases={
            "beside": Case(
                recommendation="Other work runs beside them in that time (`outliers.beside`): "
                "move it or limit it."
            ),
        },
        record="--gpu-metrics-devices=all",
        tables=("outlier_clusters", "outliers"),
        specificity=OF_KERNEL,
    ),
    Rule(
        "slow_launches",
        scope="kernel",
        title="{kernel:quoted} takes over twice its median in {share_pct} of its launches on rank "
        "{rank}",
        details="{outliers_n} of {launches_n:launch|launches} of configuration {config:quoted} "
        "take over twice their median, {all_p50_ns}: p99 {p99_ns}, longest {max_ns}. They "
        "take {lost_ns} beyond it.[ {cause_n} of {listed_n} listed: {likely_cause}.]"
        "[ In {range_name:quoted}: {range_n}.]",
        threshold=f"launches longer than {OUTLIER_RATIO:g} times the median of their "
        "configuration, without first launches, second modes, and ranks whose own median is as "
        "long; the gain is their time beyond the median, on the rank with the most of it",
        source=OURS,
        recommendation="Look at these launches (table `outliers`) in the timeline. Check the "
        "GPU's clock, other processes on it, and data that only these launches process.",
        cases={
            "pages": Case(
                title="Waiting for {pages}, {kernel:quoted} takes over twice its median in "
                "{share_pct} of its launches on rank {rank}",
                recommendation="{advice}",
            ),
            "beside": Case(
                recommendation="They run beside other work: move the copies or kernels of "
                "`outliers.beside` to another time, or give them fewer SMs, and see whether the "
                "tail disappears."
            ),
            "varying": Case(
                recommendation="So many in one configuration suggest varying amounts of work: "
                "sequence lengths, tokens per expert (`outliers.range` has the phase). "
                "Balanced batches shorten the longest."
            ),
        },
        record="--trace=cuda,nvtx",
        tables=("rank_tails", "outliers"),
        specificity=OF_KERNEL,
    ),
    Rule(
        "captures_apart",
        scope="run",
        kind=CAPTURE,
        title="Rank {rank} is recorded {recorded_after_ns} after the first one: waiting before "
        "that is left out",
        details="In collectives that began earlier, all ranks together spent {waiting_ns} until "
        "then. Waiting after that counts.",
        threshold=f"profiles that start apart, and from {format_ns(LEFT_OUT_NS)} in collectives "
        "before all of them record",
        source=OURS,
        recommendation="The other ranks may have waited for the profiler to start there. Start all "
        "captures in the same step, after a barrier.",
        tables=("rank_clocks",),
    ),
    Rule(
        "clocks_too_uncertain",
        scope="run",
        kind=CAPTURE,
        title="Clocks of ranks {communicator:quoted} are too uncertain to say which rank is late",
        details="Their clocks agree to {residual_ns}, and on {unclear_ranks_n} of {ranks_n} ranks "
        "most latenesses are below that.",
        threshold="most latenesses of a rank are below the error of the clocks",
        source=OURS,
        recommendation="Treat waits below that as noise, and blame no rank. One nsys for all ranks "
        "of a host gives them one clock.",
        tables=("stragglers", "rank_clocks"),
    ),
    Rule(
        "uncertain_matches",
        scope="run",
        kind=CAPTURE,
        title="{uncertain_pct} of the time in collectives is matched with low confidence",
        details="How much of that is waiting, and for which rank, is unknown. These collectives "
        "name no rank.",
        threshold=f"confidence is low for {UNMATCHED_PCT:g} % of the time in collectives or more",
        source=OURS,
        recommendation="Capture all ranks of the job at the same time, and more steps. One nsys "
        "for all ranks of a host gives them one clock.",
        tables=("communicators",),
    ),
    Rule(
        "unmatched_collectives",
        scope="run",
        kind=CAPTURE,
        title="{share_pct} of the communication kernels have no partner on another rank",
        details="{lost_n} of {kernels_n}; most are {operation} on {file:quoted}. Waits and late "
        "ranks are judged without them.",
        threshold=f"from {UNMATCHED_PCT:g} % of the communication kernels, on two devices or more",
        source=OURS,
        recommendation="Make sure that the inputs include all ranks of the job, captured "
        "at the same time, with the same --capture-range or --delay and --duration. "
        "Kernels that do not wait for their peer cannot be matched by time.",
        tables=("collective_coverage",),
    ),
)
