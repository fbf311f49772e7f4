"""The rules of this recipe: title, threshold with its source, advice, what to record."""

from __future__ import annotations

from functools import partial
from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import limits_words
from nsys_llm.report.rank_findings import RULES as RANK_RULES
from nsys_llm.report.rules import EXPLAINER, OURS, Case, Rule, rules_by_id
from nsys_llm.taxonomy.model_parts import LEAST_JOINED

#: A step is slow from so many times the median of its phase on its rank, by the steps of it: of
#: few, the largest may be one of another kind.
SLOW_TIMES: Final = {100: 1.5, 10: 2.0}

#: Share of the GPU time in ranges below which the explainer warns (report.py).
LOW_COVERAGE_PCT: Final = 70.0
#: Share of the GPU time in ranges of no phase from which the phase map does not fit.
UNMAPPED_PCT: Final = 50.0
#: Share of the GPU time of a rank from which a loss is worth a remark.
LOST_PCT: Final = 5.0

_WORST: Final = (
    "Of {steps_n:{unit}} on rank {rank} the median takes {usual_ns}, the worst, {unit} {step}, "
    "{window_ns}. "
)
_HOW_MANY: Final = " {slow_n:{unit}} took more than {slow_ratio:g} times the median."

_rule: Final = partial(Rule, source=OURS)
_remark: Final = partial(Rule, kind=CAPTURE, source=OURS)

RULES: Final = rules_by_id(
    *RANK_RULES.values(),
    Rule(
        "low_range_coverage",
        kind=CAPTURE,
        scope="rank",
        title="Only {share_pct} of the GPU time of {file:quoted} is in NVTX ranges",
        details="{held_ns} of {gpu_ns}[ (without {cut_ns} launched before the capture began, or in "
        "a range already open by then)]. Reason for most of the rest, {lost_ns}: {meaning}."
        "[ {others_n:other rank} affected; rank {rank} is the worst.]",
        threshold=f"below {LOW_COVERAGE_PCT:g} % of a rank's GPU time in ranges",
        source=EXPLAINER,
        recommendation="Treat phase shares as shares of the marked time only. Mark the "
        "phases on the launching threads, and record as below.",
        tables=("attribution", "coverage"),
    ),
    _remark(
        "unmarked_thread",
        scope="rank",
        title="Rank {rank}: {gpu_pct} of the GPU time was launched by threads without ranges",
        details="{gpu_ns}. One thread's range does not cover another thread's launches."
        "[ {others_n:other rank} affected; rank {rank} is the worst.]",
        threshold=f"from {LOST_PCT:g} % of a rank's GPU time",
        recommendation="PyTorch's backward pass runs on another thread than its caller: let "
        "PyTorch mark its operators. Otherwise mark the work on that thread, or use start/end "
        "ranges, which cover the launches of all threads.",
        tables=("attribution",),
    ),
    _remark(
        "unmapped_ranges",
        scope="phase",
        title="{gpu_pct} of the GPU time is in ranges that match no phase",
        details="The outermost ranges with most of that time: {outer}.",
        threshold=f"from {UNMAPPED_PCT:g} % of the GPU time",
        recommendation="Define which ranges are phases, with `--phase-map FILE` and a file like "
        '`{{"attention": "re:^aten::scaled_dot", "mlp": ["linear", "gelu"]}}`; or mark phases in '
        "the code: `torch.cuda.nvtx.range_push`, in vLLM `VLLM_NVTX_SCOPES_FOR_PROFILING=1`, in "
        "SGLang `SGLANG_ENABLE_NVTX_SCHEDULER=1`.",
        tables=("phases", "range_tree"),
    ),
    _remark(
        "few_annotated",
        scope="rank",
        title="The annotations fit {annotated_pct} of the kernels in CUDA graphs on rank {rank}: "
        "they name no part",
        details="{annotated_n} of {graph_kernels_n} kernels have a node that the files of "
        "--graph-annotations name.[ {others_n:other rank} affected.] Below 90 % the map is taken "
        "for that of another run.",
        threshold=f"annotations for less than {100 * LEAST_JOINED:g} % of a rank's kernels in "
        "CUDA graphs",
        recommendation="Save the annotations in the process that is profiled, after its graphs are "
        "instantiated, and mark all that is captured: ids of graphs and nodes hold for one "
        "process. Give each rank its file, named by the rank (rank3.json).",
        tables=("marks",),
        cases={
            "contradicted": Case(
                title="The annotations cannot be right for {annotated_pct} of the kernels in CUDA "
                "graphs on rank {rank}: they name no part",
                details="For {annotated_n} of {graph_kernels_n} kernels they contradict the NVTX "
                "ranges of layers, name a projection, norm or head for attention, or belong to a "
                "rank with other graphs.[ {others_n:other rank} affected.] The map is taken "
                "for that of another run or rank.",
            ),
        },
    ),
    _rule(
        "idle_before_phase",
        scope="phase",
        title="Rank {rank}'s GPU idles before {name:quoted}",
        details="{idle_ns} idle before its operations, which take {gpu_ns} there. {before_pct} of "
        "this idle time precedes the first operation after another phase, the rest is between "
        "operations of the phase.[ {others_n:other rank} affected.]",
        threshold=f"idle time that ends with an operation of a phase: {limits_words()}",
        recommendation="idle_gaps names the cause: a late host, a synchronization, or the "
        "latency between queued operations.",
        window_shows="the step in which it idles longest",
        tables=("rank_phases", "phase_idle"),
    ),
    _rule(
        "slow_steps",
        scope="phase",
        title="Slow {steps}: the worst takes {worst_ratio:.1f} times the median",
        details=_WORST + "Its own work took longer: {window_own_ns}, {usual_part_ns} in the "
        "median." + _HOW_MANY,
        threshold="time beyond the median, for steps above "
        + " or ".join(f"{times:g} times ({n} steps or more)" for n, times in SLOW_TIMES.items())
        + f" the median of their phase on their rank: {limits_words()}",
        recommendation="Compare the slow step with a usual one: other shapes (batch, prompt "
        "lengths, expert routing), a late rank in its collectives (tail_stats), or slower "
        "kernels.",
        cases={
            "other": Case(
                details=_WORST + "For {window_other_ns} of it, {usual_part_ns} in the median, the "
                "GPU ran work launched outside the steps, mostly {other_name:quoted} "
                "launched {where}." + _HOW_MANY,
                recommendation="The steps wait for that work. Launch it on another stream while "
                "steps run, less often, or between requests.",
            ),
            "idle": Case(
                details=_WORST + "For {window_idle_ns} of it, {usual_part_ns} in the median, the "
                "GPU was idle." + _HOW_MANY,
                recommendation="Run idle_gaps on this window for the cause.",
            ),
        },
        window_shows="the slowest, {unit} {step}",
        tables=("steps", "step_stats", "phase_steps"),
    ),
)
