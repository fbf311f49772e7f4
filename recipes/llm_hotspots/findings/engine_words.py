"""Advice in the words of the engine that runs: which of its own switches a finding is about.

Switches as their documentation names them: vLLM `vllm serve`, SGLang `launch_server`, the
LLM API of TensorRT-LLM, PyTorch's notes on CUDA and `torch.compile`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from nsys_llm.report.findings import Finding

_GRAPHS: Final = {
    "vllm": "In vLLM: no `--enforce-eager`, and batch sizes among the captured ones "
    "(`cudagraph_capture_sizes`).",
    "sglang": "In SGLang: no `--disable-cuda-graph`, and `--cuda-graph-max-bs` not below the "
    "batches that run.",
    "trtllm": "In TensorRT-LLM: `cuda_graph_config` with the batch sizes that run.",
    "pytorch": 'In PyTorch: `torch.compile(mode="reduce-overhead")`, or `torch.cuda.graphs`.',
}
_OVERLAP: Final = {
    "vllm": "In vLLM: `--async-scheduling` prepares the next step meanwhile.",
    "sglang": "In SGLang: no `--disable-overlap-schedule`.",
    "trtllm": "In TensorRT-LLM: `disable_overlap_scheduler` left at False.",
    "pytorch": "In PyTorch: `torch.cuda.set_sync_debug_mode(1)` names the lines that wait.",
}
_MEMORY: Final = {
    "vllm": "In vLLM: `--gpu-memory-utilization` decides how much is taken.",
    "sglang": "In SGLang: `--mem-fraction-static` decides how much is taken.",
    "trtllm": "In TensorRT-LLM: `kv_cache_config.free_gpu_memory_fraction` decides it.",
    "pytorch": "In PyTorch: `torch.cuda.memory_summary()` tells what is cached.",
}
_BY_RULE: Final = {
    "launch_bound": _GRAPHS,
    "launch_storm": _GRAPHS,
    "sync_in_loop": _OVERLAP,
    "memory_near_full": _MEMORY,
}


def in_words_of(engine: str | None, findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with the engine's own switches added to what is to be done.

    Args:
        engine: As `categories.engine` names it; None or generic adds nothing.
        findings: In any order, which is kept.
    """
    told = []
    for finding in findings:
        words = _BY_RULE.get(finding.rule, {}).get(engine or "")
        advice = f"{finding.recommendation} {words}" if words else finding.recommendation
        told.append(replace(finding, recommendation=advice))
    return told
