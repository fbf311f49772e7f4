"""What to do about a phase that takes most of the GPU time, by its name."""

from __future__ import annotations

from typing import Final

_BY_PHASE: Final = {
    "prefill": "Prefill computes: look at attention and GEMM precision (FP8, a newer attention "
    "backend), reuse prefixes (prefix caching), and bound its share of a step (chunked prefill).",
    "decode": "Decode reads weights and the KV cache: more sequences in a batch share the reading; "
    "quantised weights and cache shorten it; CUDA graphs take the launches away; speculative "
    "decoding makes fewer steps.",
    "mixed": "Prefill and decode share these steps: a smaller prefill chunk shortens them for the "
    "decoding sequences, a larger one makes fewer of them.",
    "sampling": "Sampling should be small beside the model: a fused sampler (FlashInfer), sampling "
    "on the GPU without a read-back, and penalties only where they are asked for.",
    "speculation": "Compare its cost with the tokens that are accepted: a smaller draft model or "
    "fewer draft tokens may pay more.",
    "forward": "Look at its categories: GEMM and attention precision, fused kernels "
    "(torch.compile), and activation recomputation, which runs the forward pass again.",
    "backward": "Look at its categories: fused kernels (torch.compile), less recomputation, and "
    "overlap of gradient reduction with it.",
    "optimizer": "A fused or foreach optimizer launches a few kernels for all parameters; sharded "
    "states (ZeRO, FSDP) divide the work among ranks.",
    "data loading": "Load and copy the next batch while the GPU computes: more workers, pinned "
    "memory, copies that do not block, on a stream of their own.",
}
_ANY: Final = (
    "Look at its kernels (phase_kernels) and categories first: a gain there counts most. "
    "llm_hotspots --filter-nvtx shows them alone."
)


def advice_on(phase: str) -> str:
    """Return what to do about a phase that takes most of the GPU time."""
    return _BY_PHASE.get(phase, _ANY)
