"""Times idle_gaps as whole processes, beside NVIDIA's list of gaps on the same input.

    python tests/benchmarks/bench_idle_gaps.py --kernels 1000000 --nsys PATH/bin/nsys

Prints seconds and peak memory of each command, median of some runs, and the ratio to NVIDIA's
`gpu_gaps --gap 0 --rows -1`, which lists all gaps and gives no causes. Nothing here passes or
fails.
"""

from __future__ import annotations

from beside_nvidia import measure

#: Every 16th gap has causes to split; before the others the host is ahead.
PAUSE_EVERY = 16

if __name__ == "__main__":
    everything = ["gpu_gaps", "--gap", "0", "--rows", "-1"]
    measure(__doc__, "idle_gaps", (everything,), pause_every=PAUSE_EVERY)
