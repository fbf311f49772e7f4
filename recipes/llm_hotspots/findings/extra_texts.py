"""The rules on extras of few captures: memory, whole graphs."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import LIMITS_PCT
from nsys_llm.report.rules import OURS, Rule
from nsys_llm.view.text import format_bytes

#: Share of the windows from which graphs that were traced whole hide what takes the time.
WHOLE_GRAPHS_PCT: Final = 10.0
#: vLLM and SGLang reserve 88 to 92 % by default (gpu_memory_utilization, mem_fraction_static), so
#: that much is intended; from here on less than a twentieth is left for everything else.
NEAR_FULL_PCT: Final = 95.0
#: Growth of memory in use, quarter by quarter, that is reported. PyTorch's allocator takes blocks
#: of 2 and 20 MiB, so a single one is no growth.
GROWTH_BYTES: Final = 64 << 20
GROWTH_PCT: Final = 2.0
GAIN: Final = f"a gain from {min(LIMITS_PCT.values()):g} % of the GPU's span"
#: Sentences that several rules share.
_OTHERS: Final = "[ {others_n:other rank} affected; rank {rank} is the worst.]"
_ALLOCATED_BY: Final = "[ {from_api_bytes} of it came from {api:quoted}.]"

EXTRA_RULES: Final = (
    Rule(
        "memory_near_full",
        kind=CAPTURE,
        scope="device",
        title="Rank {rank} fills {peak_pct} of its GPU's memory",
        details="At its peak this process had {peak_bytes} of {total_bytes} allocated. "
        "That leaves {left_bytes} for the CUDA context, libraries and other processes, which are "
        "not counted."
        f"{_ALLOCATED_BY}{_OTHERS}",
        threshold=f"from {NEAR_FULL_PCT:g} % of the GPU's memory at the peak",
        source="above the 88 to 92 % that vLLM and SGLang reserve by default",
        recommendation="Leave more room: a smaller key-value cache "
        "(gpu_memory_utilization in vLLM, mem_fraction_static in SGLang, free_gpu_memory_fraction "
        "in TensorRT-LLM; torch.cuda.memory_summary() lists what PyTorch caches), smaller batches, "
        "or activation checkpointing in training. A peak like this turns the next longer sequence "
        "into an out-of-memory error or into allocator retries.",
        tables=("memory_watermarks", "memory_allocators", "memory"),
    ),
    Rule(
        "memory_growth",
        kind=CAPTURE,
        scope="device",
        title="Memory in use on rank {rank} grows in every quarter of the run",
        details="In use at the end of each quarter of the GPU work: {quarter_bytes}, {half_bytes}, "
        "{three_quarter_bytes}, {end_bytes} ({kind} memory). In all {grown_bytes} more."
        f"{_ALLOCATED_BY}{_OTHERS}",
        threshold=f"more in use at the end of every quarter, {format_bytes(GROWTH_BYTES)} in all "
        f"and {GROWTH_PCT:g} % after the first",
        source=OURS,
        recommendation="Distinguish warm-up from a leak: capture later and longer. If memory still "
        "grows, look for tensors kept in lists, shapes that never repeat (each a new allocation or "
        "library workspace), and CUDA graphs captured again. In PyTorch, "
        "torch.cuda.memory._record_memory_history names the lines.",
        record="--cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
        tables=("memory_watermarks", "memory_allocators", "memory"),
    ),
    Rule(
        "whole_graphs",
        kind=CAPTURE,
        scope="run",
        title="{replays_n:replay} of a whole CUDA graph {replays_n:=takes|take} {p50_ns} each"
        "[, {between_p50_ns} apart]: --cuda-graph-trace=node shows what is "
        "in them",
        details="{graphs_n:whole graph} {graphs_n:=takes|take} {share_pct} of the time; replays of "
        "this one {min_ns} to {max_ns}.",
        threshold=f"CUDA graphs traced whole take at least {WHOLE_GRAPHS_PCT:g} % of the devices' "
        "windows",
        source=OURS,
        recommendation="Compare replays only by their length: which kernels take the time is "
        "unknown. Trace a few replays node by node, which lengthens them.",
        tables=("cuda_graphs", "devices"),
        record="--cuda-graph-trace=node",
    ),
)
