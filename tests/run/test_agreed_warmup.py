"""A step is warm-up for all ranks or for none, in every recipe."""

from __future__ import annotations

import json

import pytest
from quick_run import quick, quick_run
from results import analyse, read_frames, read_report
from trace_builder import TraceBuilder

US = 1_000


def rank(first_us: int, folder, number: int):
    """Write 8 steps of 100 us, the first of which takes longer, all of that on the host."""
    trace, at_ns = TraceBuilder(), 0
    trace.thread_switch(start_ns=0, goes_on=True)
    for step in range(8):
        length_ns = (100 if step else first_us) * US
        end_ns = at_ns + length_ns
        trace.nvtx(f"engine step {step}", at_ns, end_ns)
        for kernel in range(4):
            launch_ns = end_ns - (80 - 20 * kernel) * US
            trace.kernel(
                f"gemm_{kernel}",
                start_ns=launch_ns + 2 * US,
                end_ns=launch_ns + 12 * US,
                launch=(launch_ns, launch_ns + US),
            )
        at_ns = end_ns
    return trace.write_sqlite(folder / f"rank{number}.sqlite")


@pytest.fixture
def apart(tmp_path):
    """Of rank 0 the first step takes 2.4 times as long as the others, of rank 1 1.5 times."""
    folder = tmp_path / "in"
    folder.mkdir()
    rank(240, folder, 0)
    rank(150, folder, 1)
    return folder


def test_ranks_that_differ_are_read_again(apart):
    seen = []
    quick_run("idle_gaps", apart, keep=lambda view: seen.append(view.steps.warmup_n))
    assert seen == [1, 0, 1, 1]


def test_ranks_that_agree_are_read_once(tmp_path):
    for number in range(2):
        rank(240, tmp_path, number)
    seen = []
    quick_run("idle_gaps", tmp_path, keep=lambda view: seen.append(view.steps.warmup_n))
    assert seen == [1, 1]


def test_what_threads_do_in_it_is_warm_up_of_all_ranks(apart):
    states = quick("idle_gaps", apart)["host_states"]
    assert set(states.loc[states["part"] == "warm-up", "rank"]) == {0, 1}
    assert set(states.loc[states["part"] == "step", "steps_n"]) == {7}


def test_a_comparison_leaves_it_out_of_all_ranks(apart):
    sides = quick_run("trace_diff", apart, "--baseline", str(apart)).facts
    ranks = [rank for side in sides.values() for rank in side.compared.ranks.values()]
    numbers = [device.number.tolist() for rank in ranks for device in rank.walls.devices]
    assert numbers == [[*range(1, 8)]] * 4


def test_a_whole_run_says_nothing_of_how_it_was_agreed(apart, tmp_path):
    output = analyse(tmp_path / "out", apart, recipe="idle_gaps")
    assert "agreed" not in json.dumps(read_report(output)["options"])
    states = read_frames(output)["host_states"]
    assert set(states.loc[states["part"] == "warm-up", "rank"]) == {0, 1}
