"""Times llm_hotspots as whole processes, beside NVIDIA's recipes on the same input.

    python tests/benchmarks/bench_llm_hotspots.py --kernels 1000000 --nsys PATH/bin/nsys

Prints seconds and peak memory of each command, median of some runs, and the ratio to the sum of the
four NVIDIA recipes whose questions llm_hotspots answers. Nothing here passes or fails.
"""

from __future__ import annotations

from beside_nvidia import measure

NVIDIA_RECIPES = (
    ["cuda_gpu_kern_sum"],
    ["cuda_api_sum"],
    ["cuda_gpu_mem_time_sum"],
    ["cuda_gpu_mem_size_sum"],
)

if __name__ == "__main__":
    measure(__doc__, "llm_hotspots", NVIDIA_RECIPES)
