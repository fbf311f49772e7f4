"""Times tail_stats as whole processes, beside NVIDIA's kernel summary on the same input.

    python tests/benchmarks/bench_tail_stats.py --kernels 1000000 --nsys PATH/bin/nsys

Prints seconds and peak memory of each command, median of some runs, and the ratio to NVIDIA's
`cuda_gpu_kern_sum`, which answers a small part of it. Nothing here passes or fails.
"""

from __future__ import annotations

from beside_nvidia import measure

if __name__ == "__main__":
    measure(__doc__, "tail_stats", (["cuda_gpu_kern_sum"],))
