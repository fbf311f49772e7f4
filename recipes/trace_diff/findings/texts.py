"""The rules of this recipe: title, threshold with its source, advice.

A change for the worse has a gain: what its cause would win back in wall-clock time of one GPU. What
got better is an improvement; what may be chance or another amount of work is no finding.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.gains import LIMITS_PCT, limits_words
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
    "The longer communication is a late peer and not the network: look at what the late rank does "
    "before its collectives."
)
GRAPHS_LOST: Final = (
    "The baseline ran CUDA graphs and the input launches kernels one by one: that is where the "
    "idle time comes from."
)
FASTER_GPU: Final = (
    "What the GPUs do takes less time: the idle time was hidden behind it, and the host limits the "
    "step now. Fewer launches (CUDA graphs, fusion) shorten it."
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
        recommendation="Another grid or block is another problem, and no slower or faster kernel: "
        "compare in `configs` the sizes that both runs have, and the work of both runs.",
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
        recommendation="Nothing: the same total grid in larger launches.",
        tables=("kernels", "configs"),
    ),
    Rule(
        "uneven_calls",
        scope="kernel",
        title="Some calls of {name} changed, and not the usual one",
        threshold=f"means {LEAST_CHANGE_PCT:g} % apart, medians less; {_CHANGE}",
        source=_SOURCE,
        recommendation="Find out which: `configs` and `rank_kernels` tell shapes and ranks apart, "
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
        recommendation="Check that the work was saved, and not moved to another kernel.",
        tables=("kernels",),
    ),
    Rule(
        "other_kernels",
        scope="category",
        title="Work of category {name} went to other kernels",
        threshold=f"kernels that one run alone has; {_CHANGE}",
        source=_SOURCE,
        recommendation="Compare versions, shapes and autotuning caches: another variant was "
        "chosen.",
        tables=("categories", "kernels"),
    ),
    Rule(
        "waiting",
        scope="category",
        title="Communication changed by waiting for late ranks",
        threshold=f"at least half of the change of communication is waiting; {_CHANGE}",
        source=_SOURCE,
        recommendation="Look at `ranks` and at tail_stats' stragglers: the late rank is the one to "
        "fix.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "pair_waiting",
        scope="category",
        title="Ranks that send to and receive from each other wait otherwise",
        threshold=f"as waiting, at least half of it in sends and receives of two; {_CHANGE}",
        source=_SOURCE,
        recommendation="Look at tail_stats of both runs: of stages of a pipeline it names the "
        "bubble, which is the schedule's (compare microbatches and stages), and the stage that is "
        "slow or late.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "profiler_wait",
        scope="category",
        title="Communication changed by the profiler's own work",
        threshold=f"at least half of the change of waiting is the profiler's; {_CHANGE}",
        source=_SOURCE,
        recommendation="Look for no cause in the program: the profiler writes its buffers, holds a "
        "CUDA call of a rank, and the others wait. Capture both runs alike, and shorter.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "transfer",
        scope="category",
        title="Communication changed by its transfer",
        threshold=f"at least half of the change of communication is transfer; {_CHANGE}",
        source=_SOURCE,
        recommendation="Compare sizes, algorithms and links: every rank was there, and the data "
        "took other time.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "communication",
        scope="category",
        title="Communication changed",
        threshold=f"neither waiting nor transfer is half of it, or it is not known; {_CHANGE}",
        source=_SOURCE,
        recommendation="Give the reports of all ranks to tell waiting from transfer.",
        tables=("collectives", "kernels"),
    ),
    Rule(
        "copies",
        scope="copy",
        title="The number of copies changed: {name}",
        threshold=f"{COPIES_PCT:g} % and {LEAST_COPIES} copies beyond what everything does; "
        f"{_SEVERITY}",
        source=_SOURCE,
        recommendation="Find what copies with the phases of nvtx_phase_attribution: tensors that "
        "are split, made contiguous or moved.",
        tables=("memops",),
    ),
    Rule(
        "one_rank",
        scope="rank",
        title="Rank {rank} changed unlike the others",
        threshold=f"{RANK_POINTS:g} points of its kernel time unlike the median rank; {_SEVERITY}",
        source=_SOURCE,
        recommendation="Look at its row in `ranks` and `rank_kernels`: the code is the same on all "
        "ranks, so its machine, its share of the work, or what else runs there differs.",
        tables=("ranks", "rank_kernels"),
    ),
    Rule(
        "more_idle",
        scope="run",
        title="The GPUs are idle more",
        threshold=f"{IDLE_POINTS:g} points of the windows; {_SEVERITY}",
        source=_AS_IDLE,
        recommendation="Run idle_gaps on both: it lists the gaps, and what the host did in them.",
        tables=("idle", "metrics"),
    ),
    Rule(
        "idle_rank",
        scope="rank",
        title="Rank {rank} is idle more, where the others are not",
        threshold=f"its idle time a step, where that of the mean GPU did not grow; {_SEVERITY}",
        source=_AS_IDLE,
        recommendation="Compare its host with the others': the row of its GPU in `wall_change` has "
        "the causes. Waiting of the other ranks for it ends with it.",
        tables=("wall_change", "ranks"),
    ),
    Rule(
        "slower_host",
        scope="run",
        title="The host is slower, and the GPUs wait for it",
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
        recommendation="Nothing: the host keeps up better.",
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
        "lengths, backend and its switches, cascade attention for one.",
        tables=_DIAGNOSIS_TABLES,
    ),
    Rule(
        "slower_throughout",
        scope="run",
        title="Nearly all kernels got slower alike",
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
        recommendation="Repeat one of the captures like the other.",
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
