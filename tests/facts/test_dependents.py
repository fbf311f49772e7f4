"""Programmatic dependent launch: time that two kernels share is told once, and moves nothing."""

from __future__ import annotations

import pytest
from quick_run import quick
from trace_builder import TraceBuilder

US = 1_000
NAMES = ("gemm", "norm", "attention", "act")
STEPS, KERNELS = 6, 20


def write(folder, early_us, *, at=None, nodes=False):
    """Write steps of kernels of 20 us; each but the first begins early, by so many us.

    Args:
        at: Step and kernel that begin early; None for all of them.
        nodes: Whether each step is one launch of a graph.
    """
    trace, host, queue = TraceBuilder(), 1_000_000, 0
    for step in range(STEPS):
        begin, spans, call = host, [], (host, host + 5 * US)
        for k in range(KERNELS):
            is_early = k > 0 and (at is None or at == (step, k))
            start = max(call[0] + 9 * US, queue + US - is_early * (early_us + 1) * US)
            queue = start + 20 * US
            spans.append((NAMES[k % 4], start, queue))
            if not nodes:
                trace.kernel(NAMES[k % 4], start_ns=start, end_ns=queue, launch=call)
                call = (call[1] + US, call[1] + 4 * US)
        if nodes:
            trace.graph_launch(spans, launch=call)
        host = queue + 4 * US
        trace.api("cudaStreamSynchronize_v3020", start_ns=call[1] + US, end_ns=host)
        trace.nvtx(f"execute_context_0(0)_generation_4({step})", begin, host)
        host += 30 * US
    trace.write_sqlite(folder / "rank0.sqlite")
    return folder


def hidden(folder):
    row = quick("llm_hotspots", folder)["launches"].iloc[0]
    return int(row["pdl_pairs_n"]), int(row["pdl_hidden_ns"])


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [False, True])
def test_kernels_that_begin_early_in_every_step_keep_their_lag_in_replays(nodes, tmp_path):
    folder = write(tmp_path, 5, nodes=nodes)
    assert hidden(folder) == (4, STEPS * (KERNELS - 1) * 5 * US)
    tables = quick("step_budget", folder)
    assert tables["replay"]["residual_pct"].abs().max() < 0.1
    assert len(tables["what_if"])
    # 39 kernels have 15 us of their own behind the one ahead, the first has 20.
    classes = tables["step_classes"].query("scope == 'job' and detail.isna()").set_index("class")
    assert classes.loc["compute", "mean_ns"] == (20 + 15 * (KERNELS - 1)) * US


@pytest.mark.slow
def test_what_two_kernels_share_is_the_earlier_ones_in_all_sums_by_class(tmp_path):
    folder = write(tmp_path, 5)
    # The first of a step is a gemm, and shares its last 5 us with a norm that has 15 of its own.
    steps = {"gemm": 5 + 5 * 15, "norm": 5 * 15, "attention": 5 * 15, "act": 5 * 15}
    truth = {name: STEPS * us * US for name, us in steps.items()}
    hotspots, phases = (quick(name, folder) for name in ("llm_hotspots", "nvtx_phase_attribution"))
    for table in (hotspots["kernels"], phases["phase_kernels"]):
        assert dict(zip(table["name"], table["exclusive_ns"], strict=True)) == truth
    path = quick("step_budget", folder)["step_classes"].query("scope == 'job' and detail.notna()")
    on_path = path[path["class"] == "compute"].set_index("detail")["mean_ns"]
    assert on_path.to_dict() == {name: us * US for name, us in steps.items()}


@pytest.mark.parametrize("early_us", [0, 5])
def test_a_single_overlap_is_noise(early_us, tmp_path):
    folder = write(tmp_path, early_us, at=(3, 7))
    assert hidden(folder) == (0, 0)
    assert quick("step_budget", folder)["replay"]["residual_pct"].abs().max() < 1.5


def test_of_two_kernels_that_seldom_meet_a_single_overlap_is_noise(tmp_path):
    trace = TraceBuilder()
    for at in range(4):
        start = 100 * US * (at + 1)
        early = (at == 2) * 3 * US
        trace.kernel("gemm", start_ns=start, end_ns=start + 20 * US)
        trace.kernel("norm", start_ns=start + 21 * US - early, end_ns=start + 30 * US)
    trace.write_sqlite(tmp_path / "rank0.sqlite")
    assert hidden(tmp_path) == (0, 0)


def test_nodes_that_change_places_are_branches_and_no_dependents(tmp_path):
    trace = TraceBuilder()
    for replay in range(10):
        at = 100 * US * (replay + 1)
        first, second = (at + 20 * US, at + 40 * US), (at + 30 * US, at + 50 * US)
        left, right = (second, first) if replay % 3 == 2 else (first, second)
        nodes = [("head", at, at + 20 * US), ("left", *left), ("right", *right)]
        trace.graph_launch(nodes, launch=(at - 5 * US, at - US))
    trace.write_sqlite(tmp_path / "rank0.sqlite")
    assert hidden(tmp_path) == (0, 0)
