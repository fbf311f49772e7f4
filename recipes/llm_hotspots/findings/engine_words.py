"""Advice in the words of the engine that runs: which of its own switches a finding is about.

Switches as their documentation names them: vLLM `vllm serve`, SGLang `launch_server`, the
LLM API of TensorRT-LLM, PyTorch's notes on CUDA and `torch.compile`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from nsys_llm.report.findings import Finding

_MEMORY: Final = {
    "vllm": "In vLLM: `--gpu-memory-utilization` decides how much is taken.",
    "sglang": "In SGLang: `--mem-fraction-static` decides how much is taken.",
    "trtllm": "In TensorRT-LLM: `kv_cache_config.free_gpu_memory_fraction` decides it.",
    "pytorch": "In PyTorch: `torch.cuda.memory_summary()` lists what is cached.",
}
_BY_RULE: Final = {"memory_near_full": _MEMORY}


def in_words_of(engine: str | None, findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with the engine's own switches added to what is to be done.

    Args:
        engine: As `categories.engine` names it; None or generic adds nothing.
        findings: In any order, which is kept.
    """
    reported = []
    for finding in findings:
        words = _BY_RULE.get(finding.rule, {}).get(engine or "")
        advice = f"{finding.recommendation} {words}" if words else finding.recommendation
        reported.append(replace(finding, recommendation=advice))
    return reported
