"""Findings about the host: each fires on a trace that has it, and on none that has not."""

from __future__ import annotations

import numpy as np
import pytest
from results import analyse, read_frames, tables_of

from nsys_llm.recipes.llm_hotspots.findings.apis import wait_findings
from nsys_llm.recipes.llm_hotspots.findings.launches import launch_findings
from nsys_llm.report.findings import ranked
from nsys_llm.testing.trace_builder import TraceBuilder

MS, US = 1_000_000, 1_000
SYNC = "cudaStreamSynchronize_v3020"


def findings_of(tables):
    return ranked([*launch_findings(tables), *wait_findings(tables)])


def findings(tmp_path, *traces):
    paths = [
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite") for rank, trace in enumerate(traces)
    ]
    return findings_of(tables_of(tmp_path / "o", *paths))


def busy(*spans):
    """A GPU that is busy in these ms, launched ahead of time."""
    trace = TraceBuilder()
    for at, (start, end) in enumerate(spans):
        launch = (-1000 + 2 * at, -999 + 2 * at)
        trace.kernel("k", start_ns=int(start * MS), end_ns=int(end * MS), launch=launch)
    return trace


def rules(found):
    return [(one.severity, one.rule) for one in found]


def test_a_busy_gpu_and_a_host_ahead_of_it_give_no_finding(tmp_path):
    assert findings(tmp_path, busy((0, 100))) == []


def test_a_storm_says_where_it_is_and_how_many_kernels(tmp_path):
    start_ns = 50 * MS + np.arange(5_000) * 20 * US
    trace = TraceBuilder().kernels(
        ["k"],
        start_ns * 0,
        start_ns=start_ns,
        end_ns=start_ns + 4 * US,
        launch_ns=(start_ns - 9, start_ns - 8),
    )
    (found,) = findings(tmp_path, trace)
    assert (found.rule, found.severity) == ("launch_storm", "medium")
    assert found.window_ns == (50 * MS, 150 * MS)
    assert "5,000 kernels start within 100 ms (50,000 a second), 4 us each" in found.details
    assert found.impact_ns == 5_000


def test_small_kernels_in_graphs_are_no_storm_of_launches(tmp_path):
    start_ns = np.arange(5_000) * 20 * US
    trace = TraceBuilder().kernels(
        ["k"], start_ns * 0, start_ns=start_ns, end_ns=start_ns + 4 * US, graph_node_ids=7
    )
    assert rules(findings(tmp_path, trace)) == [("low", "small_graph_kernels")]


def launch_bound(call_us):
    """Kernels of 2 us, each launched by a call of so many us that ends as the kernel begins."""
    trace = TraceBuilder()
    for at in range(20):
        start_ns = 100 * US * (at + 1)
        call = (start_ns - call_us * US, start_ns)
        trace.kernel("k", start_ns=start_ns, duration_ns=2 * US, launch=call)
    return trace


def test_a_gpu_that_idles_inside_launch_calls_waits_for_launches(tmp_path):
    # A window of 19 * 100 + 2 us, and 19 calls of 50 us inside it: 49.9 %.
    (found,) = findings(tmp_path, launch_bound(50))
    assert (found.rule, found.severity) == ("launch_bound", "high")
    assert found.impact_ns == 19 * 50 * US
    assert "For 950 us, 49.9 % of its window" in found.details
    assert found.window_ns == (100 * US, 2002 * US)


def test_short_launch_calls_are_no_finding(tmp_path):
    # 19 * 10 of 1902 us: 9.99 %.
    assert findings(tmp_path, launch_bound(10)) == []


def test_launch_calls_that_wait_while_the_gpu_works_are_only_noted(tmp_path):
    trace = busy((0, 40), (40, 100))
    trace.api("cudaLaunchKernel_v7000", start_ns=20 * MS, duration_ns=2 * MS)
    (found,) = findings(tmp_path, trace)
    assert (found.rule, found.severity) == ("launch_queue_full", "note")
    assert found.window_ns == (20 * MS, 22 * MS)
    assert found.impact_ns == 2 * MS


def test_launch_calls_that_wait_while_the_gpu_idles_are_worse(tmp_path):
    # 6 of 100 ms.
    trace = busy((0, 20), (26, 100)).api("cuLaunchKernel", start_ns=20 * MS, duration_ns=6 * MS)
    (found,) = findings(tmp_path, trace)
    assert (found.rule, found.severity, found.impact_ns) == ("slow_launches", "medium", 6 * MS)


def waits(outlast_ms):
    """Four steps of 25 ms whose last ms the host waits for, and idles after."""
    trace = busy(*((25 * step, 25 * step + 25 - outlast_ms) for step in range(5)))
    for step in range(5):
        start_ns = (25 * step + 10) * MS
        trace.api(SYNC, start_ns=start_ns, end_ns=int((25 * step + 25.01 - outlast_ms) * MS))
    return trace


def test_waits_in_the_loop_that_let_the_gpu_run_dry_are_found(tmp_path):
    # Four gaps of 2 ms in 123 ms: 6.5 %.
    (found,) = findings(tmp_path, waits(2))
    assert (found.rule, found.severity, found.impact_ns) == ("sync_in_loop", "medium", 8 * MS)
    assert "4 times the GPU ran out of work" in found.details
    assert found.name == "cudaStreamSynchronize"


def test_long_waits_that_the_gpu_s_work_hides_are_only_noted(tmp_path):
    trace = busy((0, 100)).api(SYNC, start_ns=10 * MS, end_ns=90 * MS)
    assert rules(findings(tmp_path, trace)) == [("note", "host_waits_for_gpu")]


def test_a_wait_before_the_first_operation_costs_nothing(tmp_path):
    trace = busy((900, 1000)).api(SYNC, start_ns=0, end_ns=800 * MS)
    assert findings(tmp_path, trace) == []


def test_copies_that_block_the_host_are_found_when_they_come_back(tmp_path):
    once = busy((0, 100)).api("cudaMemcpy_v3020", start_ns=50 * MS, end_ns=58 * MS)
    assert findings(tmp_path, once) == []
    often = busy((0, 100))
    for start in (40, 50, 60):
        often.api("cudaMemcpy_v3020", start_ns=start * MS, end_ns=(start + 8) * MS)
    (found,) = findings_of(
        tables_of(tmp_path / "often", often.write_sqlite(tmp_path / "often.sqlite"))
    )
    assert (found.rule, found.severity, found.impact_ns) == ("sync_memop", "medium", 24 * MS)


def test_polling_is_found_from_a_tenth_of_a_thread_on(tmp_path):
    trace = busy((0, 100))
    for start in range(0, 100, 10):
        trace.api("cudaEventQuery_v3020", start_ns=start * MS, end_ns=(start + 1) * MS, tid=7)
    assert rules(findings(tmp_path, trace)) == [("low", "polling")]


def test_allocations_in_the_first_quarter_are_set_up_and_no_churn(tmp_path):
    early, late = busy((0, 100)), busy((0, 100))
    for step in range(10):
        for trace, at in ((early, step), (late, 30 + 5 * step)):
            trace.api("cudaMalloc_v3020", start_ns=at * MS, duration_ns=MS // 2)
    assert findings(tmp_path, early) == []
    (found,) = findings_of(
        tables_of(tmp_path / "late", late.write_sqlite(tmp_path / "late.sqlite"))
    )
    # 10 calls of 0.5 ms in 75 ms.
    assert (found.rule, found.severity, found.impact_ns) == ("allocation_churn", "medium", 5 * MS)
    assert "133 a second" in found.details
    assert "6.7 %" in found.details


def test_a_launching_thread_in_the_operating_system_is_found_if_the_gpu_idles(tmp_path):
    trace = busy((0, 20), (30, 100)).osrt("futex", start_ns=20 * MS, end_ns=29 * MS)
    trace.osrt("poll", start_ns=0, end_ns=100 * MS, tid=9)
    (found,) = findings(tmp_path, trace)
    assert (found.rule, found.name, found.impact_ns) == ("os_wait", "futex", 9 * MS)
    assert found.window_ns == (20 * MS, 29 * MS)


def test_one_finding_names_the_worst_rank_and_counts_the_others(tmp_path):
    (found,) = findings(tmp_path, waits(2), busy((0, 100)), waits(4))
    assert (found.rule, found.rank) == ("sync_in_loop", 2)
    # Gaps of 2 and of 4 ms, four of each.
    assert found.impact_ns == 4 * 2 * MS + 4 * 4 * MS
    assert "So it is on 2 ranks (24 ms in all); this is the worst." in found.details


@pytest.mark.traces
@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        # Half of the time in cudaStreamSynchronize, of which 0.3 % without work on the GPU: what
        # nsys-llm-explainer reports as synchronisation to remove.
        ("h100_mfu/before", [("note", "host_waits_for_gpu")]),
        ("h100_mfu/after", [("note", "host_waits_for_gpu")]),
    ],
)
def test_what_is_found_in_real_traces_is_true(traces, tmp_path, trace, expected):
    tables = read_frames(analyse(tmp_path / "o", traces / f"{trace}.sqlite"))
    assert rules(findings_of(tables)) == expected
