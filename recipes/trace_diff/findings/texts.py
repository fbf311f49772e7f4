"""The rules of this recipe: title, threshold with its source, advice.

A change for the worse has a gain: what its cause would win back in wall-clock time of one GPU. What
got better is an improvement; what may be chance or another amount of work is no finding.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import LIMITS_PCT, limits_words
from nsys_llm.report.rules import OURS, Case, Rule, rules_by_id

from ..tables.checks import ALL, STEP_TIMES, TOTALS
from ..tables.workload_match import ALIKE_PCT, LEAST_CHANGE_PCT

#: Share of the host's time in calls and ranges that got slower, from which the host is slower.
SLOWER_HOST_SHARE_PCT: Final = 50.0
#: Share of the kernel time from which a change is worth a word.
LEAST_PCT: Final = 0.5
#: Ratio of mean durations that is worth a word however little time it is about.
STANDS_OUT: Final = 1.5

#: Launches are split or merged if there are so many times as many, or as few.
SPLIT_RATIO: Final = 1.5
#: The grids of all launches together are the same within this percentage.
SAME_GRID_PCT: Final = 1.0
#: Change of the number or bytes of copies, in percent, that is worth a word.
COPIES_PCT: Final = 20.0
LEAST_COPIES: Final = 5
#: Percentage points of the windows that idle time has to change by; as in idle_gaps' low findings.
IDLE_POINTS: Final = 2.0
#: Percent of a step below which a gain is no finding.
LEAST_GAIN_PCT: Final = min(LIMITS_PCT.values())
#: Percent of its kernel time by which a rank has to change unlike the median rank; as much as
#: idle_gaps asks of idle time.
RANK_POINTS: Final = 5.0

#: Numbers of launches that differ by less are the same.
SAME_LAUNCHES_PCT: Final = 1.0
#: Everything got slower alike: the ratio of so much of the kernel time lies within this of the
#: common one, which is at least that far from 1.
SAME_RATIO_PCT: Final = 3.0
SAME_RATIO_SHARE_PCT: Final = 80.0
LEAST_SLOWDOWN_PCT: Final = 3.0

#: Changes of how many launches and copies there are: of another mix of steps they tell nothing.
OF_COUNTS: Final = frozenset({"more_calls", "fewer_calls", "other_kernels", "copies"})
#: Changes of launch sizes, which another mix of steps makes too.
OF_SIZES: Final = frozenset({"other_sizes", "split_launches", "merged_launches"})

#: What a conclusion adds to the advice on the change that it explains.
LATE_PEER: Final = (
    "A late peer, not the network, makes communication longer: look at what the late rank does "
    "before its collectives."
)
GRAPHS_LOST: Final = (
    "The baseline ran CUDA graphs and the input launches kernels one by one: that is where the "
    "idle time comes from."
)
FASTER_GPU: Final = (
    "The work of the GPUs takes less time: it used to hide this idle time, and now the host limits "
    "the step. Fewer launches (CUDA graphs, fusion) shorten it."
)
HOST_BOUND: Final = (
    "The GPU waits for the host more than before ({cause}): what slowed down is the code that "
    "launches, not the kernels."
)

_SOURCE: Final = OURS
_AS_IDLE: Final = OURS
_SEVERITY: Final = limits_words()
_CHANGE: Final = f"from {LEAST_PCT:g} % or {STANDS_OUT:g} times the duration; {_SEVERITY}"
_BETTER: Final = f"an improvement from {LEAST_GAIN_PCT:g} % of a step"
_DIAGNOSIS_TABLES: Final = ("kernels", "categories", "memops")

RULES: Final = rules_by_id(
    Rule(
        "slower_calls",
        scope="kernel",
        title="{name} got slower per call",
        threshold=f"calls of the same size beyond chance, {LEAST_CHANGE_PCT:g} % of the median; "
        f"{_CHANGE}",
        source=_SOURCE,
        recommendation="Its grids and blocks are the same: compare versions of the kernel, clocks "
        "and power of the GPU, and sizes that no grid shows (lengths of sequences, experts).",
        tables=("kernels", "configs"),
    ),
    Rule(
        "faster_calls",
        scope="kernel",
        title="{name} got faster per call",
        threshold=f"calls of the same size beyond chance, {LEAST_CHANGE_PCT:g} % of the median; "
        f"{_BETTER}",
        source=_SOURCE,
        recommendation="Check that it still does the same work: a grid does not show all sizes.",
        tables=("kernels", "configs"),
    ),
    Rule(
        "other_sizes",
        scope="kernel",
        title="{name} runs at other sizes",
        threshold=f"other grids or blocks; {_CHANGE} where steps are known to do the same work",
        source=_SOURCE,
        recommendation="Another grid or block is another problem size, not a slower or faster "
        "kernel: compare in `configs` the sizes that both runs have, and the work of both runs.",
        tables=("configs", "kernels"),
    ),
    Rule(
        "split_launches",
        scope="kernel",
        title="{name} is split into more launches",
        threshold=f"{SPLIT_RATIO:g} times as many launches, the same total grid within "
        f"{SAME_GRID_PCT:g} %; {_CHANGE}",
        source=_SOURCE,
        recommendation="The same total grid in smaller launches costs more launches and fills the "
        "GPU less: find what splits it (chunks, micro-batches, buckets).",
        tables=("kernels", "configs"),
    ),
    Rule(
        "merged_launches",
        scope="kernel",
        title="{name} is merged into fewer launches",
        threshold=f"{SPLIT_RATIO:g} times fewer launches, the same total grid within "
        f"{SAME_GRID_PCT:g} %; {_BETTER}",
        source=_SOURCE,
        recommendation="No action needed: the same total grid in larger launches.",
        tables=("kernels", "configs"),
    ),
    Rule(
        "uneven_calls",
        scope="kernel",
        title="Some calls of {name} changed, the typical call did not",
        threshold=f"means {LEAST_CHANGE_PCT:g} % apart, medians less; {_CHANGE}",
        source=_SOURCE,
        recommendation="Find out which: `configs` and `rank_kernels` separate shapes and ranks, "
        "tail_stats lists the outliers.",
        tables=("kernels", "configs"),
    ),
    Rule(
        "more_calls",
        scope="kernel",
        title="{name} runs more often",
        threshold=f"{ALIKE_PCT:g} % beyond what all kernels do; {_CHANGE}",
        source=_SOURCE,
        recommendation="Find where the extra launches come from: `nvtx_phase_attribution` names "
        "the ranges.",
        tables=("kernels",),
    ),
    Rule(
        "fewer_calls",
        scope="kernel",
        title="{name} runs less often",
        threshold=f"{ALIKE_PCT:g} % beyond what all kernels do; {_BETTER}",
        source=_SOURCE,
        recommendation="Check that the work was saved, not moved to another kernel.",
        tables=("kernels",),
    ),
    Rule(
        "other_kernels",
        scope="category",
        title="Work of category {name} moved to other kernels",
        threshold=f"kernels that only one run has; {_CHANGE}",
        source=_SOURCE,
        recommendation="Compare versions, shapes and autotuning caches: another variant was "
        "chosen.",
        tables=("categories", "kernels"),
    ),
    Rule(
        "waiting",
        scope="category",
        title="Communication time changed: waiting for late ranks",
        threshold=f"at least half of the change of communication is waiting; {_CHANGE}",
        source=_SOURCE,
        recommendation="Look at `ranks` and at tail_stats' stragglers: the late rank is the one to "
        "fix.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "pair_waiting",
        scope="category",
        title="Communication time changed: waiting in sends and receives",
        threshold=f"as waiting, at least half of it in sends and receives of two ranks; {_CHANGE}",
        source=_SOURCE,
        recommendation="Run tail_stats on both runs: for pipeline stages it gives the bubble, "
        "which follows from the schedule (compare microbatches and stages), and names the stage "
        "that is slow or late.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "profiler_wait",
        scope="category",
        title="Communication time changed: the profiler's own work",
        threshold=f"at least half of the change of waiting is the profiler's; {_CHANGE}",
        source=_SOURCE,
        recommendation="The program is not the cause: the profiler writes its buffers, which holds "
        "up a CUDA call of one rank, and the others wait. Capture both runs in the same way, and "
        "shorter.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "transfer",
        scope="category",
        title="Communication time changed: transfer",
        threshold=f"at least half of the change of communication is transfer; {_CHANGE}",
        source=_SOURCE,
        recommendation="Compare sizes, algorithms and links: every rank was there, and the "
        "transfer itself changed.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "communication",
        scope="category",
        title="Communication time changed",
        threshold=f"neither waiting nor transfer is half of it, or it is not known; {_CHANGE}",
        source=_SOURCE,
        recommendation="Give the profiles of all ranks to separate waiting from transfer.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "copies",
        scope="copy",
        title="The number of copies changed: {name}",
        threshold=f"{COPIES_PCT:g} % and {LEAST_COPIES} copies beyond the change of all work; "
        f"{_SEVERITY}",
        source=_SOURCE,
        recommendation="Find what copies with the phases of nvtx_phase_attribution: tensors that "
        "are split, made contiguous or moved.",
        tables=("memops",),
    ),
    Rule(
        "one_rank",
        scope="rank",
        title="Rank {rank} changed differently from the others",
        threshold=f"{RANK_POINTS:g} points of its kernel time from the median rank; {_SEVERITY}",
        source=_SOURCE,
        recommendation="Look at its row in `ranks` and `rank_kernels`: the code is the same on all "
        "ranks, so its machine, its share of the work, or what else runs there differs.",
        tables=("ranks", "rank_kernels"),
    ),
    Rule(
        "more_idle",
        scope="run",
        title="The GPUs are idle longer",
        threshold=f"{IDLE_POINTS:g} points of the windows; {_SEVERITY}",
        source=_AS_IDLE,
        recommendation="Run idle_gaps on both: it lists the gaps, and what the host did in them.",
        tables=("idle", "metrics"),
    ),
    Rule(
        "idle_rank",
        scope="rank",
        title="Rank {rank} is idle longer, the others are not",
        threshold=f"its idle time per step, where that of the mean GPU did not grow; {_SEVERITY}",
        source=_AS_IDLE,
        recommendation="Compare its host with the others': the row of its GPU in `wall_change` has "
        "the causes. The other ranks wait only because of it.",
        tables=("wall_change", "ranks"),
    ),
    Rule(
        "slower_host",
        scope="run",
        title="The host is slower: GPUs wait for it",
        threshold=f"medians of calls and ranges that wait for no GPU: {SLOWER_HOST_SHARE_PCT:g} % "
        "of their time in those that got slower beyond chance; the gain is idle time by causes of "
        f"the host; {_SEVERITY}",
        source=_SOURCE,
        recommendation="Compare the hosts: CPU model and clock, other processes, pinning and NUMA "
        "node, Python and driver versions, tracing options. The GPU's work is not the cause.",
        tables=("host", "wall_change"),
    ),
    Rule(
        "less_idle",
        scope="run",
        title="The GPUs are idle less",
        threshold=f"{IDLE_POINTS:g} points of the windows; {_BETTER}",
        source=_AS_IDLE,
        recommendation="No action needed: the host keeps up better.",
        tables=("idle", "metrics"),
    ),
    Rule(
        "another_path",
        scope="run",
        title="The same work took a different path",
        threshold=f"as many launches within {SAME_LAUNCHES_PCT:g} %, kernels of one category "
        "replaced, and longer calls or more copies inside the device; "
        f"{_SEVERITY}",
        source=OURS,
        recommendation="{telling}Compare what chooses the path of {work}: batch size, prompt "
        "lengths, backend and its switches, such as cascade attention.",
        tables=_DIAGNOSIS_TABLES,
    ),
    Rule(
        "slower_throughout",
        scope="run",
        title="Nearly all kernels got slower by one ratio",
        threshold=f"{SAME_RATIO_SHARE_PCT:g} % of the kernel time within {SAME_RATIO_PCT:g} % of "
        f"one ratio, {LEAST_SLOWDOWN_PCT:g} % or more from 1; {_SEVERITY}",
        source=OURS,
        recommendation="Repeat the run on an idle machine with clocks locked.",
        tables=_DIAGNOSIS_TABLES,
    ),
    Rule(
        "not_comparable",
        scope="run",
        title="{what} are not comparable: {check}",
        threshold="a check of the table `comparability` that keeps all, sums or times per step "
        "from being compared",
        kind=CAPTURE,
        source=OURS,
        recommendation="Repeat one capture with the settings of the other.",
        cases={
            ALL: Case(),
            TOTALS: Case(recommendation="Read times per call, shares, and times per step."),
            STEP_TIMES: Case(
                recommendation="Leave out what runs outside of the steps: `--steps 0:`, or a "
                "filter by time."
            ),
        },
        tables=("comparability",),
    ),
)
