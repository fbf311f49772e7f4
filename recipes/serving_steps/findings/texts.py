"""The rules of this recipe: title, threshold with its source, advice, what to record."""

from __future__ import annotations

from typing import Any, Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import TAIL_LIMIT_PCT, limits_words
from nsys_llm.report.rank_findings import RULES as RANK_RULES
from nsys_llm.report.rules import OF_BATCH, OF_CLASS, OF_KERNEL, OURS, Rule, rules_by_id

#: Share of rows of CUDA graphs without a token.
PADDING_PCT: Final = 10.0
#: Share of the cost of steps with context that their host leaves idle.
EAGER_PCT: Final = 10.0
#: Share of the windows of steps that the device idles before their first operation.
BEFORE_PCT: Final = 3.0
#: What a step with context adds to the interval between tokens, of one without.
ADDS_PCT: Final = 50.0

_NODE: Final = "--trace=cuda,nvtx --cuda-graph-trace=node"


def _rule(rule: str, tables: tuple[str, ...], **texts: Any) -> Rule:
    return Rule(rule, scope="device", source=texts.pop("source", OURS), tables=tables, **texts)


RULES: Final = rules_by_id(
    *RANK_RULES.values(),
    _rule(
        "graph_padding",
        ("padding", "cost_model"),
        title="CUDA graphs compute {padding_pct} empty rows on rank {rank}",
        details="{padding_n} of {rows_n} rows hold no token, over {steps_n:step}. One more row "
        "costs {row_ns:.3g} ns: {time_ns} together.",
        threshold=f"{PADDING_PCT:g} % of the rows of graphs whose sizes are known; "
        f"{limits_words()}",
        recommendation="Capture more graphs at the batch sizes in use, as `batch_steps` shows them "
        "(`cudagraph_capture_sizes` in vLLM, `--cuda-graph-bs` in SGLang, `cuda_graph_config` in "
        "TensorRT-LLM).",
        record=_NODE,
        specificity=OF_KERNEL,
    ),
    _rule(
        "eager_prefill",
        ("batches", "batch_steps", "inter_token"),
        title="Steps with prefill run outside CUDA graphs: the GPU idles {idle_pct} more of their "
        "time",
        details="{eager_n:step} with context on rank {rank} replay no graph: {idle_ns} of "
        "{cost_ns} idle for host causes, beyond the idle time of decode steps.[ They add "
        "{mixed_adds_ns} to the time between tokens, p99 {p99_ns}.]",
        threshold=f"{EAGER_PCT:g} % of the cost of steps with context and without a graph, beyond "
        f"the idle time of decode steps; {limits_words()}",
        source="vllm#56975 (p99 of 199 ms for a decode step of 12 to 17 ms); the share is ours",
        recommendation="Capture steps with context too: piecewise CUDA graphs and a large enough "
        "`max_cudagraph_capture_size` in vLLM, piecewise graphs in SGLang and TensorRT-LLM. "
        "Otherwise launch less: torch.compile, larger prefill chunks.",
        record=_NODE,
        specificity=OF_BATCH,
    ),
    _rule(
        "host_before_steps",
        ("before_steps", "servers"),
        title="The GPU idles {idle_ns} before each step",
        details="{window_pct} of the time from step to step. The largest part: {range_ns} a step "
        "in {range:quoted}.",
        threshold=f"{BEFORE_PCT:g} % of the time from step to step; {limits_words()}",
        recommendation="Prepare the next step while the GPU runs this one: async scheduling in "
        "vLLM, the overlap scheduler in SGLang and TensorRT-LLM. Start with the top of "
        "`before_steps`.",
        specificity=OF_CLASS,
    ),
    _rule(
        "prefill_in_decode",
        ("inter_token",),
        title="Prefill adds {mixed_adds_ns} to the time between tokens, which is {pure_ns} without",
        details="Over {mixed_n:interval} with a step that reads a prompt, at equal request "
        "counts. p50 {p50_ns}, p99 {p99_ns}.",
        threshold=f"{ADDS_PCT:g} % of an interval without prefill; tail from "
        f"{TAIL_LIMIT_PCT:g} % of the p99 between tokens",
        recommendation="Use smaller prefill chunks (`--max-num-batched-tokens`, "
        "`--chunked-prefill-size`, `max_num_tokens`), which raises TTFT, or prefill on other GPUs "
        "(disaggregated serving).",
        specificity=OF_CLASS,
    ),
    _rule(
        "drafts_lose",
        ("speculation",),
        title="Drafts do not pay on rank {rank}: a request accepts {accepted:.2f} a step, "
        "{needed_low:.2f} are needed",
        details="95 % interval of accepted drafts: {accepted_low:.2f} to {accepted_high:.2f}, "
        "over {pairs_n:pair} of steps. Without drafts the same tokens take {lost_ns} less.",
        threshold="the upper end of the interval of accepted drafts is below the lowest "
        f"number at which drafting and verifying break even; {limits_words()}",
        recommendation="Draft fewer tokens (`num_speculative_tokens` in vLLM, "
        "`--speculative-num-steps` in SGLang, `max_draft_len` in TensorRT-LLM), use a cheaper or "
        "better draft model, or turn speculation off at this batch size.",
        specificity=OF_BATCH,
    ),
    _rule(
        "names_of_no_format",
        ("servers",),
        kind=CAPTURE,
        title="{unparsed_n} of {steps_n} steps have names of no known format",
        details="On rank {rank}, such as {examples}. They count as steps with unknown batches.",
        threshold="1 step",
        recommendation="Costs are reported if at most 5 % of the names have an unknown format. A "
        "newer engine may use other names: please file an issue with them.",
    ),
)
