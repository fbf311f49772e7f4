"""The rules of this recipe: title, what explains a change, threshold, advice; prose of its answer.

A change for the worse has a gain: its part of the change of a step, which its fix would win back.
What got better is an improvement; what may be chance or another amount of work is no finding.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import limits_words
from nsys_llm.report.rules import OURS, Rule, rules_by_id

from ..tables.equal_work import SLOW_TIMES

#: Share of the host's time in calls and ranges that got slower, from which the host is slower.
SLOWER_HOST_SHARE_PCT: Final = 50.0
#: Launches are split or merged if there are so many times as many, or as few.
SPLIT_RATIO: Final = 1.5
#: Percent of its computation by which a rank has to change unlike the others.
RANK_POINTS: Final = 2.0
#: Everything got slower alike: the ratio of so much of the kernel time lies within this of the
#: common one, which is at least that far from 1.
SAME_RATIO_PCT: Final = 3.0
SAME_RATIO_SHARE_PCT: Final = 80.0
LEAST_SLOWDOWN_PCT: Final = 3.0

#: Prose of the answer.
SLOWER_BURSTS: Final = "SLOWER in bursts: "
FASTER_BURSTS: Final = "FASTER: bursts gone: "
SLOW: Final = "{slow} of {steps} {unit}s {take} more than twice the median ({before} before)"
EQUAL_WORK: Final = (
    "means of {steps} {unit}s of equal work, without the fastest and the slowest tenth"
)
NO_STEPS: Final = "No step was found: the spans of the GPUs are compared."
FEW: Final = "fewer than {least} without slow ones show only a size; record 40 or more"
ENOUGH: Final = "about {enough} {unit}s would decide"
MIXED: Final = ": most {unit}s are {most}, but the mean of all is {mean}"
ORDER: Final = "{steps} {takes}{work} than {passed} before. {doubt}: record {runs}about {enough}."
ALIKE: Final = "{unit}s in a row are alike, so these prove little"
FEW_PROVE: Final = "so few {unit}s do not prove it"
MORE_RUNS: Final = "3 runs of the baseline (--baselines), or "
OTHER_KERNELS: Final = "Other kernels for the same work, as far as the steps' names say."
SUMS: Final = "Sums over the runs are not comparable"
NO_KERNELS: Final = "Neither run has a kernel in the selection: nothing to compare."
WHOLE_GRAPHS: Final = (
    "Kernels inside CUDA graphs are not visible ({counts} graphs were traced as a whole; record "
    "with --cuda-graph-trace=node): including graphs, the GPUs are busy for {before} in the "
    "baseline and {after} in the input."
)

#: What explains a change of a class, by rule; see `nsys_llm.report.templates`.
_ON: Final = "{moved_ns:signed}[ on rank {on}]"
_WAITING: Final = f"waiting {_ON}[, {{profiler_pct:.0f}} % of it for the profiler's own work]"
_CALLS: Final = "{before} -> {after} calls"
_GRID: Final = f" launches of the same total grid, {_CALLS}"
_RANGE: Final = "[, the host in {range:quoted} ({range_ns:signed})]"
_HOST: Final = "the host: {words}"
_IDLE: Final = "{most}[; the work of the {working} takes less and no longer hides it]"
WHAT: Final = {
    "slower_calls": "{kernel} takes {longer} per call in {after} calls",
    "faster_calls": "{kernel} takes {longer} per call in {after} calls",
    "other_sizes": f"{{kernel}} runs at another size, {{size0}} -> {{size1}} threads a launch, "
    f"{_CALLS}",
    "split_launches": f"{{kernel}} is split into smaller{_GRID}",
    "merged_launches": f"{{kernel}} is merged into larger{_GRID}",
    "more_calls": f"{{kernel}}: {_CALLS}",
    "fewer_calls": f"{{kernel}}: {_CALLS}",
    "other_kernels": "[{come_n} new {category:quoted} {come_n:=kernel|kernels}, the largest "
    "{largest:quoted}, {come_ns}{both}][{gone_n:kernel} of {gone_ns} gone]",
    "compute": "{kernels_n:kernel}, most in {name:quoted}",
    "slower_throughout": "nearly all kernels take {moved_pct} longer",
    "faster_throughout": "nearly all kernels take {moved_pct} shorter",
    "one_rank": "on rank {rank} alone {longer} ({usual_pct:+.1f} % on the others)[, by {kernels}]",
    "waiting": f"{_WAITING}[, most for rank {{late}}][, most for rank {{before}} before]",
    "pair_waiting": f"{_WAITING}, in sends and receives of two ranks",
    "profiler_wait": _WAITING,
    "transfer": f"transfer {_ON}[, {{baseline_call_ns}} -> {{input_call_ns}} a collective, "
    "all ranks]",
    "communication": "how much of it is waiting is unknown: its collectives are not matched",
    "slower_host": _HOST,
    "faster_host": _HOST,
    "idle_rank": "rank {rank} alone is idle {moved_ns} {longer}[ (mostly {most})]"
    "[, the host in {range:quoted} ({range_ns})]",
    "new_waits": "new waits: {name:quoted} {before} -> {after} {a_step}",
    "graphs_lost": "the {graphs_n} graph launches of the baseline are gone: kernels are launched "
    "one by one",
    "more_idle": f"{_IDLE}{_RANGE}",
    "less_idle": f"{_IDLE}{_RANGE}",
    "profiler": "the profiler wrote its buffers",
}
#: Copies of a kind, by what changed of them.
COPIES: Final = {
    "new": "{after} {kind} {a_step}, new",
    "gone": "{before} {kind} {a_step}, gone",
    "counts": "{before} -> {after} {kind} {a_step}",
    "sizes": "{baseline_bytes} -> {input_bytes} in {after} {kind} {a_step}",
    "longer": "the same {after} {kind} {a_step} take {longer}",
    "beside": "as many copies as before, {how} of them beside kernels",
}
#: Calls and ranges of a slower host: the first kinds, and the next.
HOST_FIRST: Final = "{part}{kinds} take {longer} times as long (medians: {medians})"
HOST_NEXT: Final = "{part}{kinds} {longer} times ({medians})"
_OF_CHANGE: Final = (
    "{sentence}. On GPU {device_id} of rank {rank} it takes {impact_ns} {more} {a_step}."
)
_OF_BURSTS: Final = (
    "{words}. They take {excess_ns} longer than the others ({usual_ns}), {detail_ns} of it "
    "{most:quoted} on rank {rank}."
)

_OF_CLASS: Final = (
    "a class of wall-clock time with at least a fifth of the difference, and its main cause; "
    f"{limits_words()}"
)
_BETTER: Final = "the same, 20 % of the difference or more, in the faster direction: an improvement"
_TITLES: Final = {
    "slower_calls": "{name:quoted} got slower per call",
    "faster_calls": "{name:quoted} got faster per call",
    "other_sizes": "{name:quoted} runs at other sizes",
    "split_launches": "{name:quoted} is split into more launches",
    "merged_launches": "{name:quoted} is merged into fewer launches",
    "more_calls": "{name:quoted} runs more often",
    "fewer_calls": "{name:quoted} runs less often",
    "other_kernels": "Work of category {name:quoted} moved to other kernels",
    "compute": "Kernels take another time, most of it in {name:quoted}",
    "slower_throughout": "Nearly all kernels got slower by one ratio",
    "faster_throughout": "Nearly all kernels got faster by one ratio",
    "one_rank": "Rank {rank} changed differently from the others",
    "waiting": "Communication time changed: waiting for late ranks",
    "pair_waiting": "Communication time changed: waiting in sends and receives",
    "profiler_wait": "Communication time changed: the profiler's own work",
    "transfer": "Communication time changed: transfer",
    "communication": "Communication time changed",
    "copies": "Copies changed: {kind}",
    "slower_host": "The host is slower: GPUs wait for it",
    "faster_host": "The host is faster: GPUs wait less for it",
    "idle_rank": "Rank {rank} alone is idle {longer}",
    "new_waits": "The host waits more often: {name:quoted}",
    "graphs_lost": "CUDA graphs are gone: kernels are launched one by one",
    "more_idle": "The GPUs are idle longer",
    "less_idle": "The GPUs are idle less",
    "profiler": "The profiler took another time",
    "bursts": "Slow steps: rank {rank}[ pauses in {range:quoted}]",
}
_ADVICE: Final = {
    "slower_calls": "Its grids and blocks are unchanged. Compare kernel versions, GPU clocks and "
    "power, and sizes that grids do not show (sequence lengths, experts). If the "
    "medians in `kernels` are alike, few calls are slow: tail_stats lists them.",
    "faster_calls": "Check that it still does the same work: a grid does not show all sizes.",
    "other_sizes": "A different grid or block means a different problem size, not a slower or "
    "faster kernel. In `configs`, compare sizes common to both runs, and check the work of both.",
    "split_launches": "The same total grid in smaller launches costs more launches and fills the "
    "GPU less: find what splits it (chunks, micro-batches, buckets).",
    "merged_launches": "The same total grid in larger launches: if it costs time, find what "
    "merges it.",
    "more_calls": "Find where the extra launches come from: `nvtx_phase_attribution` names the "
    "ranges.",
    "fewer_calls": "Check that the work was saved, not moved to another kernel.",
    "other_kernels": "Another variant was chosen. Compare versions, shapes, autotuning caches and "
    "backends.",
    "compute": "No single kernel explains it: compare categories in `wall_change` and "
    "configurations in `configs`.",
    "slower_throughout": "This points to the machine, not the code: clocks, power or heat, another "
    "GPU, the profiler. Repeat the run on an idle machine with locked clocks.",
    "faster_throughout": "This points to the machine, not the code: compare clocks and power of "
    "both runs.",
    "one_rank": "Check its rows in `wall_change`. All ranks run the same code, so its machine, its "
    "share of the work, or other work on that machine differs.",
    "waiting": "The cause is a late peer, not the network. Check what the late rank does before "
    "its collectives, `wall_change` and tail_stats.",
    "pair_waiting": "Run comm_stats on both runs: for pipeline stages it gives the bubble, which "
    "follows from the schedule (compare microbatches and stages), and names the slow or late "
    "stage.",
    "profiler_wait": "The program is not the cause: the profiler flushes its buffers and delays a "
    "CUDA call of one rank, and the others wait. Capture both runs in the same way, and shorter.",
    "transfer": "Compare sizes, algorithms and links: all ranks had arrived, so the transfer "
    "itself changed.",
    "communication": "Give the profiles of all ranks to separate waiting from transfer.",
    "copies": "Find the code that copies with the phases of nvtx_phase_attribution: tensors are "
    "split, made contiguous or moved. Pageable memory blocks the host, pinned memory does not.",
    "slower_host": "Compare the hosts: CPU model and clock, other processes, pinning and NUMA "
    "node, Python and driver versions, tracing options. The GPU's work is not the cause.",
    "faster_host": "No action needed: the host keeps up better.",
    "idle_rank": "The other ranks wait for it. Compare its host with the others: its GPU's row in "
    "`wall_change` has the causes.",
    "new_waits": "Find the code that waits for the GPU in each step: reading a loss or a token, an "
    "assertion, a copy to the host.",
    "graphs_lost": "Find why no graph was captured or replayed: shapes, batch sizes, an option.",
    "more_idle": "Run idle_gaps on both runs: it lists the gaps and the host's activity in them.",
    "less_idle": "No action needed: the host keeps up better, or work hides more of it.",
    "profiler": "The program is not the cause: capture both runs in the same way, and shorter.",
    "bursts": "Check these steps: `slow_steps` has their numbers, idle_gaps and tail_stats show "
    "the host's activity in them.",
}
#: Scope, tables with the numbers, and the rules of which they are.
_ABOUT: Final = (
    ("kernel", "kernels configs wall_change", "slower_calls faster_calls other_sizes "
     "split_launches merged_launches more_calls fewer_calls"),
    ("category", "kernels wall_change", "other_kernels"),
    ("category", "wall_change kernels", "compute"),
    ("run", "kernels wall_change", "slower_throughout faster_throughout"),
    ("rank", "kernels wall_change", "one_rank"),
    ("category", "collectives wall_change",
     "waiting pair_waiting profiler_wait transfer communication"),
    ("copy", "memops wall_change", "copies"),
    ("run", "host wall_change", "slower_host faster_host"),
    ("rank", "wall_change idle_ranges", "idle_rank"),
    ("api", "apis wall_change", "new_waits"),
    ("run", "apis wall_change", "graphs_lost"),
    ("run", "idle_ranges wall_change", "more_idle less_idle"),
    ("run", "wall_change", "profiler"),
    ("rank", "slow_steps verdict", "bursts"),
)  # fmt: skip
_THRESHOLDS: Final = {
    **dict.fromkeys(
        ("faster_calls", "fewer_calls", "faster_throughout", "faster_host", "less_idle"), _BETTER
    ),
    "slower_host": f"{_OF_CLASS}; {SLOWER_HOST_SHARE_PCT:g} % of the host's time is in calls and "
    "ranges that got slower beyond chance",
    "bursts": f"one run has more steps above {SLOW_TIMES:g} times the median (Fisher's exact "
    f"test, one-sided, 0.05); {limits_words()}",
}


def _rule(name: str) -> Rule:
    scope, tables, _ = next(item for item in _ABOUT if name in item[2].split())
    return Rule(
        name,
        scope=scope,
        title=_TITLES[name],
        threshold=_THRESHOLDS.get(name, _OF_CLASS),
        source=OURS,
        recommendation=_ADVICE[name],
        details=_OF_BURSTS if name == "bursts" else _OF_CHANGE,
        tables=tuple(tables.split()),
    )


RULES: Final = rules_by_id(
    *map(_rule, _TITLES),
    Rule(
        "not_comparable",
        scope="run",
        title="The runs are not comparable: {check}",
        details="{words}.",
        threshold="a check in the table `comparability` that rules out any comparison",
        kind=CAPTURE,
        source=OURS,
        recommendation="Repeat one capture with the settings of the other.",
        tables=("comparability",),
    ),
)
