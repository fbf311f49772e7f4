"""A prompt that a decode step starts on another stream is no part of it; what keeps its pace is."""

from __future__ import annotations

import numpy as np
import pytest
from quick_run import quick, quick_run
from trace_builder import TraceBuilder

US = 1_000
STEPS = 20


def decoding(*beside, at_step=5):
    """Return steps of 100 us, of which 90 are kernels on stream 7.

    Args:
        beside: (name, us) of kernels that a step starts on stream 13, one after the other.
        at_step: Which step.
    """
    trace = TraceBuilder()
    for step in range(STEPS):
        at = (1_000 + 100 * step) * US
        trace.nvtx(f"execute_context_0(0)_generation_8({step})", at, at + 98 * US)
        if step == at_step:
            end = at + 3 * US
            for name, took_us in beside:
                start, end = end, end + took_us * US
                call = (at + US, at + 2 * US)
                trace.kernel(name, start_ns=start, end_ns=end, launch=call, stream_id=13)
        for kernel in range(3):
            start = at + (5 + 30 * kernel) * US
            call = (at + (2 + kernel) * US, at + (3 + kernel) * US)
            trace.kernel("gemm", start_ns=start, end_ns=start + 30 * US, launch=call, stream_id=7)
    return trace


def found(trace, tmp_path):
    views = []
    quick_run("step_budget", trace.write_sqlite(tmp_path / "rank0.sqlite"), keep=views.append)
    return views[0].steps


def lengths_us(steps):
    return (np.diff(steps.windows_ns(0), axis=1)[:, 0] // US).tolist()


@pytest.mark.parametrize("prompt", [[("prefill", 700)], [("prefill", 60)] * 12])
def test_steps_beside_a_long_prompt_are_uniform(prompt, tmp_path):
    steps = found(decoding(*prompt), tmp_path)
    assert lengths_us(steps) == [95] + [100] * (STEPS - 1)
    took_ns = sum(took_us for _, took_us in prompt) * US
    assert vars(steps.beside) == {
        "window_ns": 95 * US,
        "limit_ns": 190 * US,
        "kernels_n": len(prompt),
        "time_ns": took_ns,
    }


@pytest.mark.parametrize(
    ("name", "took_us"), [("shared_expert", 185), ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 700)]
)
def test_what_keeps_the_pace_of_a_step_or_communicates_belongs_to_it(name, took_us, tmp_path):
    steps = found(decoding((name, took_us)), tmp_path)
    assert steps.beside.kernels_n == 0
    # From 5 us before its begin, where the step before ended, to 3 us and all of it behind that.
    assert lengths_us(steps)[5] == 5 + 3 + took_us


def test_what_ran_beside_is_measured_apart(tmp_path):
    decoding(("prefill", 700)).write_sqlite(tmp_path / "rank0.sqlite")
    row = quick("step_budget", tmp_path)["rank_edges"].iloc[0]
    names = ["own_window_ns", "beside_limit_ns", "beside_kernels_n", "beside_ns"]
    assert row[names].tolist() == [95 * US, 190 * US, 1, 700 * US]
    steps = quick("serving_steps", tmp_path)["findings"]
    assert not [title for title in steps["title"] if title.startswith("Slow")]
