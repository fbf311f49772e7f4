"""The rules of this recipe: title, threshold with its source, advice, what to record.

Limits by severity are percentages, and stand highest first.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.rules import EXPLAINER, OURS, Case, Rule, limits_text, rules_by_id

#: Share of the GPU time from which a phase dominates: the explainer (heuristics.py).
DOMINANT_PCT: Final = 70.0
#: A rank is slow in a phase from so much work above the median rank, in percent of that; ranks
#: that do the same differ by less (1 to 2 % on real traces). And only if it is so much of all its
#: GPU time.
IMBALANCE_PCT: Final = {"high": 30.0, "medium": 10.0, "low": 5.0}
IMBALANCE_SHARE_PCT: Final = 1.0
#: Share of the windows that is idle before work of a phase for which the GPU waits longer than it
#: runs it. As idle_gaps has it: half of what the explainer calls high is.
HOST_BOUND_PCT: Final = {"high": 20.0, "medium": 5.0, "low": 0.5}
#: Host time of a phase, in multiples of its GPU time, that is far above it.
WALL_TIMES: Final = 2
#: Communication that nothing hides, in percent of all GPU time, and of the phase.
EXPOSED_PCT: Final = {"medium": 10.0, "low": 2.0}
EXPOSED_OF_PHASE_PCT: Final = 10.0

#: A tail is systematic from this ratio of p99 to p50 in at least so many values, an outlier from
#: this ratio of the maximum to p50.
SYSTEMATIC: Final = 1.5
SYSTEMATIC_LEAST: Final = 100
OUTLIER: Final = 2.0
#: With fewer values the largest may be one of another kind.
OUTLIER_LEAST: Final = 10
#: What the tail takes beyond the median, in percent of the time in steps, that is worth a word.
LEAST_EXCESS_PCT: Final = 1.0

#: Share of the GPU time in ranges below which the explainer warns (report.py).
LOW_COVERAGE_PCT: Final = 70.0
#: Share of the GPU time in ranges of no phase from which the map is to be mended.
UNMAPPED_PCT: Final = 50.0
#: Share of the GPU time from which that of a loss by itself is told.
LOST_PCT: Final = 5.0

_TAIL: Final = (
    f"medium: p99 above {SYSTEMATIC:g} times the median in {SYSTEMATIC_LEAST} steps or more; low: "
    f"the longest above {OUTLIER:g} times the median in {OUTLIER_LEAST} steps or more, and "
    f"{LEAST_EXCESS_PCT:g} % of the time in steps beyond it"
)

RULES: Final = rules_by_id(
    Rule(
        "low_range_coverage",
        scope="rank",
        title="Only {share} of the GPU time of {file} lies in NVTX ranges",
        threshold=f"medium below {LOW_COVERAGE_PCT:g} % of a rank's GPU time in ranges",
        source=EXPLAINER,
        recommendation="Read shares of phases as shares of what was marked, and no more. Mark the "
        "phases on the threads that launch, and record as below.",
        tables=("attribution", "coverage"),
    ),
    Rule(
        "unmarked_thread",
        scope="rank",
        title="{share} of the GPU time was launched by threads that mark nothing",
        threshold=f"low from {LOST_PCT:g} % of the GPU time",
        source=OURS,
        recommendation="If this is PyTorch's backward pass, its thread is not the one that calls "
        "backward(): let PyTorch mark its operators. Else mark the work of that thread, or use "
        "start/end ranges, which hold the launches of all threads.",
        tables=("attribution",),
    ),
    Rule(
        "unmapped_ranges",
        scope="phase",
        title="{share} of the GPU time lies in ranges of which none is a phase",
        threshold=f"low from {UNMAPPED_PCT:g} % of the GPU time",
        source=OURS,
        recommendation="Say which ranges are phases, with `--phase-map FILE` and a file like "
        '`{{"attention": "re:^aten::scaled_dot", "mlp": ["linear", "gelu"]}}`; or mark phases in '
        "the code: `torch.cuda.nvtx.range_push`, in vLLM `VLLM_NVTX_SCOPES_FOR_PROFILING=1`, in "
        "SGLang `SGLANG_ENABLE_NVTX_SCHEDULER=1`.",
        tables=("phases", "range_tree"),
    ),
    Rule(
        "phase_imbalance",
        scope="phase",
        title="Rank {rank} works {more} longer in {phase} than the {usual}",
        threshold=f"work of a rank above the median rank: {limits_text(IMBALANCE_PCT)}, and "
        f"{IMBALANCE_SHARE_PCT:g} % of its GPU time",
        source=OURS,
        recommendation="With as many operations as the others, its GPU is slower (clocks, thermal "
        "or power limits, another job): compare its kernels in llm_hotspots. With more, its share "
        "of the work is larger (experts, sequence lengths, pipeline stage).",
        window_shows="its range of the phase with most GPU time",
        tables=("rank_phases", "phases", "phase_steps"),
    ),
    Rule(
        "host_bound_phase",
        scope="phase",
        title="The GPU waits for {phase} longer than it works on it",
        threshold="idle before the work of a phase, longer than its GPU time: "
        f"{limits_text(HOST_BOUND_PCT)} of the windows; host time above {WALL_TIMES} times its GPU "
        "time",
        source=f"half of what {EXPLAINER} calls high (high), {OURS} (the others)",
        recommendation="The host decides the speed here. Let it launch ahead (async scheduling, no "
        "read-back inside the phase), launch fewer and larger pieces (CUDA graphs, fused kernels), "
        "or move the work off the thread that launches; idle_gaps names the calls.",
        window_shows="the GPU in one range of the phase",
        tables=("phase_idle", "phases"),
    ),
    Rule(
        "exposed_communication",
        scope="phase",
        title="{share} of {phase} is communication that nothing hides",
        threshold=f"{limits_text(EXPOSED_PCT)} of all GPU time, and {EXPOSED_OF_PHASE_PCT:g} % of "
        "that of the phase",
        source=OURS,
        recommendation="Split waiting from transfer with tail_stats first: a late rank makes this "
        "time. What is transfer hides behind computation (overlap of communication, sequence "
        "parallelism), or shrinks (fused or custom all-reduce, fewer tensor-parallel ranks).",
        tables=("phase_collectives", "phases"),
    ),
    Rule(
        "phase_tail",
        scope="phase",
        title="{phase} takes {times} times its median at p99 of the steps",
        threshold=_TAIL,
        source=OURS,
        recommendation="Compare a long step with a usual one: other shapes (batch, prompt lengths, "
        "routing of experts), a late rank in its collectives, or slower kernels; tail_stats tells "
        "the latter apart.",
        window_shows="the GPU in the longest range of the phase",
        tables=("phase_steps", "steps", "phase_instances"),
    ),
    Rule(
        "slow_steps",
        scope="phase",
        title="Some steps of {phase} take {times} times the median",
        threshold=_TAIL,
        source=OURS,
        recommendation="Where the GPU's time is as usual, the host held the step up: idle_gaps "
        "with this window says by what. Else see which phase grew (phase_steps).",
        window_shows="the slowest, step {step}",
        tables=("step_stats", "steps"),
    ),
    Rule(
        "warm_up_steps",
        scope="run",
        title="{steps} {are} warm-up and not in the percentiles",
        threshold=f"a note where first steps take more than {OUTLIER:g} times the median of their "
        "phase",
        source=OURS,
        recommendation="Add --skip-warmup to leave the first step out of every table, or --steps "
        "A: for more of them.",
        window_shows="the longest of them",
        tables=("steps", "step_stats"),
    ),
    Rule(
        "dominant_phase",
        scope="phase",
        title="{phase} takes {share} of the GPU time",
        threshold=f"medium from {DOMINANT_PCT:g} % of the GPU time",
        source=EXPLAINER,
        recommendation="Look at its kernels (phase_kernels) and categories first: a gain there "
        "counts most. llm_hotspots --filter-nvtx shows them alone.",
        cases={
            "prefill": Case(
                recommendation="Prefill computes: look at attention and GEMM precision (FP8, a "
                "newer attention backend), reuse prefixes (prefix caching), and bound its share of "
                "a step (chunked prefill)."
            ),
            "decode": Case(
                recommendation="Decode reads weights and the KV cache: more sequences in a batch "
                "share the reading; quantised weights and cache shorten it; CUDA graphs take the "
                "launches away; speculative decoding makes fewer steps."
            ),
            "mixed": Case(
                recommendation="Prefill and decode share these steps: a smaller prefill chunk "
                "shortens them for the decoding sequences, a larger one makes fewer of them."
            ),
            "sampling": Case(
                recommendation="Sampling should be small beside the model: a fused sampler "
                "(FlashInfer), sampling on the GPU without a read-back, and penalties only where "
                "they are asked for."
            ),
            "speculation": Case(
                recommendation="Compare its cost with the tokens that are accepted: a smaller "
                "draft model or fewer draft tokens may pay more."
            ),
            "forward": Case(
                recommendation="Look at its categories: GEMM and attention precision, fused "
                "kernels (torch.compile), and activation recomputation, which runs the forward "
                "pass again."
            ),
            "backward": Case(
                recommendation="Look at its categories: fused kernels (torch.compile), less "
                "recomputation, and overlap of gradient reduction with it."
            ),
            "optimizer": Case(
                recommendation="A fused or foreach optimizer launches a few kernels for all "
                "parameters; sharded states (ZeRO, FSDP) divide the work among ranks."
            ),
            "data loading": Case(
                recommendation="Load and copy the next batch while the GPU computes: more workers, "
                "pinned memory, copies that do not block, on a stream of their own."
            ),
        },
        tables=("phases", "phase_categories", "phase_kernels"),
    ),
)
