"""The rules of this recipe: title, threshold with its source, advice, what to record."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import limits_words
from nsys_llm.report.rank_findings import RULES as RANK_RULES
from nsys_llm.report.rules import OF_CLASS, OF_KERNEL, OURS, Case, Rule, rules_by_id

#: Share of the memory's peak bandwidth below which decoding leaves room, and what is reachable.
DECODE_PCT: Final = 60.0
REACHABLE: Final = 0.85
#: Share of the peak below which a product leaves room, what is reachable, and its least time.
GEMM_PCT: Final = 40.0
GEMM_REACHABLE_PCT: Final = 70.0
GEMM_SPAN_PCT: Final = 5.0
#: Share of a counter's peak from which Nsight Compute calls a unit highly used.
USED_PCT: Final = 60.0

RULES: Final = rules_by_id(
    *RANK_RULES.values(),
    Rule(
        "decode_below_roofline",
        scope="device",
        source=OURS,
        tables=("step_roofline", "lost", "peaks"),
        title="Decode steps use {mbu_pct} of the memory's peak bandwidth on rank {rank}",
        details="Median of {steps_n:step}: {cost_ns} each, {roofline_ns} at the peak. At "
        "85 % of the peak they would take {time_ns} less in total.",
        threshold=f"median MBU below {DECODE_PCT:g} %, with --model, over memory-bound steps "
        f"whose names give their contexts; {limits_words()}",
        recommendation="Start with the idle time in `lost` (step_budget shows its cause), then "
        "kernels that read weights below the bandwidth: larger batches, quantized weights, CUDA "
        "graphs, fused kernels.",
        specificity=OF_CLASS,
    ),
    Rule(
        "gemm_below_roofline",
        scope="kernel",
        source=OURS,
        tables=("gemm_roofline", "peaks"),
        title="{kernel:quoted} reaches {mfu_pct} of the peak at {m} x {n} x {k}",
        details="{total_ns} over {operators_n:operator} on rank {rank}, median {p50_ns}. At "
        "70 % of the peak they would take {time_ns} less.",
        threshold=f"{GEMM_SPAN_PCT:g} % of the span, compute-bound, MFU below {GEMM_PCT:g} %; "
        f"{limits_words()}",
        recommendation="Use sizes that are multiples of 8 (16 bits) or 16 (8 bits), larger "
        "batches, another layout, or another library's kernel.",
        specificity=OF_KERNEL,
    ),
    Rule(
        "wrong_model",
        scope="rank",
        source=OURS,
        tables=("peaks", "step_roofline"),
        kind=CAPTURE,
        title="The model of --model does not fit rank {rank}: no roofline of its steps",
        details="Steps would be faster than the peaks of {gpu:quoted} allow.",
        cases={
            "memory": Case(
                details="{weights_bytes} of weights do not fit into the memory of {gpu:quoted}."
            ),
            "ranks": Case(details="--tp is {tp}, but all-reduces join {joined_ranks_n:rank}."),
            "layers": Case(
                details="The config has {layers_n:layer}, but a step's launches show "
                "{layers_seen_n}."
            ),
        },
        threshold="a median above 100 %; weights above the GPU's memory; a server's --tp that "
        "differs from the number of ranks in its all-reduces; fewer attention kernels or "
        "all-reduces a step than layers, or from 1.5 times the layers on a number that is no "
        "multiple",
        recommendation="Check the config, --tp, --ep and --kv-dtype against what the server ran.",
    ),
)
