"""Rows that a damaged profile has beside what it lost: they give results all the same."""

from __future__ import annotations

import pandas as pd
import pytest
from effort import at_night
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.core.nulls import NULL_INT


def tables_of(folder, trace, *words):
    trace.write_sqlite(folder / "rank0.sqlite")
    return quick("step_budget", folder / "rank0.sqlite", *words)


@pytest.mark.parametrize("words", [(), ("--step", "re:execute_context")])
@pytest.mark.parametrize("start_ns", [NULL_INT, -(2**62)])
def test_a_range_without_a_start_is_no_step(tmp_path, start_ns, words):
    trace = TraceBuilder()
    for begin in (0, 1_000):
        trace.kernel("a", start_ns=begin + 100, end_ns=begin + 200, launch=(begin + 50, begin + 60))
    trace.nvtx("execute_context_1(4)_generation_2(2)", start_ns, 500)
    trace.nvtx("execute_context_1(4)_generation_2(2)", 1_000, 1_500)
    steps = tables_of(tmp_path, trace, *words)["device_steps"]
    assert steps["start_ns"].tolist() == [1_000]


@pytest.mark.parametrize("device", [1, 1_023, 1_024, 1_025, 2**31, -1])
def test_devices_of_any_id_have_streams_of_their_own(tmp_path, device):
    trace = TraceBuilder()
    for number, begin in enumerate((0, 1_000)):
        trace.nvtx(f"ProfilerStep#{number}", begin + 10, begin + 900)
        trace.kernel("a", start_ns=begin + 100, end_ns=begin + 300, launch=(begin + 50, begin + 60))
        trace.kernel(
            "b",
            start_ns=begin + 400,
            end_ns=begin + 700,
            launch=(begin + 70, begin + 80),
            device_id=device,
        )
    steps = tables_of(tmp_path, trace)["device_steps"]
    times = {key: rows.tolist() for key, rows in steps.groupby("device_id")["compute_ns"]}
    assert times == {0: [200, 200], device: [300, 300]}
    assert steps.groupby("device_id")["end_ns"].max().to_dict() == {0: 1_300, device: 1_700}


@pytest.mark.parametrize("damaged", [0, 2, 5])
@pytest.mark.parametrize(
    "start_ns", [NULL_INT, -(2**62), 2**53, *at_night((NULL_INT + 1,), (2**62,), (2**63 - 300,))]
)
def test_a_graph_launch_without_a_sane_time_marks_no_step(tmp_path, start_ns, damaged):
    trace = TraceBuilder(duration_ns=10_000)
    for replay in range(6):
        begin = 1_000 * replay
        call_ns = (begin + 50, begin + 60) if replay != damaged else (start_ns, start_ns + 10)
        for node, name in enumerate("abc"):
            trace.kernel(
                name,
                start_ns=begin + 100 * node + 100,
                end_ns=begin + 100 * node + 190,
                correlation_id=100 + replay,
                graph_node_id=node + 1,
                launch=call_ns if node == 0 else None,
                launch_name="cudaGraphLaunch_v10000",
            )
    steps = tables_of(tmp_path, trace)["device_steps"]
    # Without the first launch the others mark steps; else they begin where the replays do.
    ends = [1_000 * replay + 390 for replay in range(6)]
    starts = [100, *ends[:-1]] if damaged else [1_050, *ends[1:-1]]
    assert steps["start_ns"].tolist() == starts
    assert steps["end_ns"].tolist() == (ends if damaged else ends[1:])
    assert steps["compute_ns"].tolist() == [270] * len(starts)


@pytest.mark.parametrize("times", [(-(2**62), 5_060), (1_050, 2**63 - 1)])
def test_a_range_with_a_time_that_no_capture_can_have_changes_nothing(tmp_path, times):
    trace = TraceBuilder(duration_ns=10_000)
    for begin in range(0, 6_000, 1_000):
        trace.nvtx("forward", begin + 10, begin + 95).nvtx("host work", begin + 700, begin + 800)
        trace.kernel("a", start_ns=begin + 100, duration_ns=90, launch=(begin + 50, begin + 60))
        trace.kernel("b", start_ns=begin + 200, duration_ns=90, launch=(begin + 100, begin + 160))
    sound = tables_of(tmp_path, trace)
    (tmp_path / "rank0.sqlite").unlink()
    damaged = tables_of(tmp_path, trace.nvtx("decode", *times))
    assert damaged.keys() == sound.keys()
    for name in sound.keys() - {"files"}:  # of which the sizes are told
        pd.testing.assert_frame_equal(damaged[name], sound[name], obj=name)
