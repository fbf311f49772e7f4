"""Gains of nvtx_phase_attribution: on the demo, real traces and random ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from effort import seeds
from gain_checks import check_findings
from quick_run import quick

from nsys_llm.recipes.nvtx_phase_attribution.findings.answer import findings
from nsys_llm.testing.demo import write_demo
from nsys_llm.testing.trace_builder import TraceBuilder

RECIPE = "nvtx_phase_attribution"
MS = 1_000_000
TRACES = ["h100_mfu/before", "h100_mfu/after"]


def check(tables):
    listed = findings(tables)
    check_findings(listed, tables)
    return listed


def of(listed, rule):
    return [finding for finding in listed if finding.rule == rule]


def test_the_demo(tmp_path):
    demo = write_demo(tmp_path, scale=0.5)
    listed = check(quick(RECIPE, *demo.baseline))
    (slow,) = of(listed, "phase_imbalance")
    assert (slow.rank, slow.severity) == (demo.planted.slow_rank, "high")


@pytest.mark.traces
@pytest.mark.parametrize("name", TRACES)
def test_real_ranks(traces, name):
    listed = check(quick(RECIPE, Path(traces / f"{name}.sqlite")))
    assert of(listed, "unmapped_ranges")


def random_rank(rng, rank, slowness):
    """Write steps of two phases; return the idle time before each, and the work in it."""
    trace = TraceBuilder(hostname=f"n{rank}", utc_epoch_ns=None)
    idle, work = dict.fromkeys(("prefill", "decode"), 0), dict.fromkeys(("prefill", "decode"), 0)
    at = 0
    for step in range(12):
        phase = "prefill" if step % 4 == 0 else "decode"
        begin = at
        for number in range(int(rng.integers(2, 5))):
            gap = int(rng.choice([10, 300_000, 2 * MS])) if at else 10
            length = int(rng.integers(MS, 3 * MS) * slowness)
            start = at + gap
            trace.kernel("k", start_ns=start, duration_ns=length, launch=(start - 2, start - 1))
            if number or step:
                idle[phase] += gap
            work[phase] += length
            at = start + length
        trace.nvtx(phase, begin, at)
    return trace, idle, work


@pytest.mark.parametrize("seed", seeds(10, 4))
def test_random_ranks_lose_what_was_planted(tmp_path, seed):
    rng = np.random.default_rng(seed)
    ranks_n = int(rng.integers(2, 5))
    slow = int(rng.integers(ranks_n))
    ranks = [
        random_rank(np.random.default_rng(seed + 99), rank, 1.4 if rank == slow else 1.0)
        for rank in range(ranks_n)
    ]
    paths = [
        trace.write_sqlite(tmp_path / f"rank{number}.sqlite")
        for number, (trace, _, _) in enumerate(ranks)
    ]
    listed = check(quick(RECIPE, *paths))
    (straggler,) = of(listed, "phase_imbalance")
    usual = ranks[(slow + 1) % ranks_n][2]
    assert straggler.rank == slow
    assert straggler.gain.gain_ns == sum(ranks[slow][2][name] - usual[name] for name in usual)
    assert "straggler" in straggler.title
    idle = {finding.name: finding for finding in of(listed, "idle_before_phase")}
    for phase in ("prefill", "decode"):
        # All ranks idle alike: the gain is that of any of them, and of the first.
        planted = ranks[0][1][phase]
        if phase in idle:
            assert idle[phase].gain.gain_ns == planted
        else:
            assert planted < sum(usual.values()) / 50


@pytest.mark.parametrize("inside_ns", [0, 30_000, 2 * MS])
def test_without_phases_the_range_in_which_a_gpu_is_idle_is_named(tmp_path, inside_ns):
    trace, at = TraceBuilder(), 0
    for _ in range(5):
        # Between two ranges, 3 ms; in each, a gap of its own.
        begin = at + 3 * MS
        trace.nvtx("acme_loop", begin - 100, begin + 2 * MS + inside_ns)
        for start in (begin, begin + MS + inside_ns):
            trace.kernel("k", start_ns=start, duration_ns=MS, launch=(start - 9, start - 8))
        at = begin + 2 * MS + inside_ns
    listed = of(
        check(quick(RECIPE, trace.write_sqlite(tmp_path / "rank0.sqlite"))), "idle_before_phase"
    )
    # 0.15 ms of 22.15 is too little.
    assert [finding.gain.gain_ns for finding in listed] == (
        [10 * MS] if inside_ns == 2 * MS else []
    )
    assert all("in `acme_loop`" in finding.title for finding in listed)
