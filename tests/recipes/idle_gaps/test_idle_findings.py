"""Answer, caveats and findings of idle_gaps: what was planted is found, and nothing without it."""

from __future__ import annotations

import pytest
from quick_run import quick
from results import tables_of
from trace_builder import TraceBuilder

from nsys_llm.recipes.idle_gaps.findings.answer import answer, caveats
from nsys_llm.recipes.idle_gaps.findings.answer import findings as unpriced
from nsys_llm.report.causes import Cause
from nsys_llm.report.prices.pricing import priced


def findings(tables):
    return priced(unpriced(tables), tables)


US, MS = 1_000, 1_000_000


def of_rule(tables, rule):
    return [finding for finding in findings(tables) if finding.rule == rule]


def test_what_the_profiler_takes_is_not_called_idle(tmp_path):
    trace = TraceBuilder()
    for start in (1, 16):
        launch = (start * MS - 9 * US, start * MS - 4 * US)
        trace.kernel("gemm", start_ns=start * MS, duration_ns=10 * MS, launch=launch)
    trace.overhead("CUPTI Buffer flush", start_ns=12 * MS, duration_ns=3 * MS, overhead_type=3)
    path = trace.write_sqlite(tmp_path / "rank0.sqlite")
    (finding,) = of_rule(quick("idle_gaps", path), "profiler_in_gaps")
    assert finding.title == "The profiler takes 12.0 % of rank 0's time, with nothing on its GPU"
    assert finding.details.startswith("3 ms on rank 0, counted neither as busy nor as idle. ")


def busy(trace, periods, gap_ns, work_ns=MS, *, name="k", **launch):
    """Add kernels of some length with gaps between them, launched at the last moment."""
    at = 0
    for _ in range(periods):
        lead = (at - 5 * US, at - US)
        trace.kernel(name, start_ns=at, end_ns=at + work_ns, launch=lead, **launch)
        at += work_ns + gap_ns
    return trace


def run_on(folder, *traces, options=()):
    paths = [
        trace.write_sqlite(folder / f"rank{number}.sqlite") for number, trace in enumerate(traces)
    ]
    return tables_of(folder / "out", *paths, options=options, recipe="idle_gaps")


def test_a_busy_gpu_has_no_finding(tmp_path):
    tables = run_on(tmp_path, busy(TraceBuilder(), 20, 0))
    assert findings(tables) == []
    assert answer(tables).endswith("There is no idle time to explain.")


def test_short_gaps_before_late_launches_are_launch_bound(tmp_path):
    # 200 gaps of 15 us between kernels of 30 us: a third of the time.
    tables = run_on(tmp_path, busy(TraceBuilder(), 201, 15 * US, 30 * US))
    (finding,) = of_rule(tables, "launch_bound")
    assert finding.severity == "high"
    assert "`k` to `k`, 200 times, median 15 us." in finding.details
    assert "CUDA graphs" in finding.recommendation


def phases(name, *, drafted_n):
    """Return 4 steps of 60 launches 15 us apart, of which the first are in a range."""
    trace, step_ns = TraceBuilder(), 60 * 45 * US
    busy(trace, 240, 15 * US, 30 * US)
    for at in range(0, 4 * step_ns, step_ns):
        middle = at + drafted_n * 45 * US
        trace.nvtx("execute_context_0(0)_generation_2(2)", at - 8 * US, at + step_ns - 9 * US)
        trace.nvtx(name, at - 7 * US, middle - 8 * US)
        trace.nvtx("gpu_model_runner: forward", middle - 7 * US, at + step_ns - 10 * US)
    return trace


@pytest.mark.parametrize(
    ("name", "drafted_n", "named", "advice"),
    [
        # 4 times 49 gaps in 240 kernels of 30 us and 239 gaps of 15 us; the 50th begins the range.
        ("draft", 50, "27.3 % in `gpu_model_runner: draft`", "The drafter launches its kernels"),
        ("draft", 10, "`gpu_model_runner: forward`", "Replay the step as CUDA graphs"),
        ("sample", 50, "`gpu_model_runner: sample`", "Replay the step as CUDA graphs"),
    ],
)
def test_launches_that_come_too_slowly_are_told_with_their_phase(
    tmp_path, name, drafted_n, named, advice
):
    tables = run_on(tmp_path, phases(f"gpu_model_runner: {name}", drafted_n=drafted_n))
    (finding,) = of_rule(tables, "launch_bound")
    said = "Rank 0's host launches too slowly: its GPU idles 33.2 % in short gaps, "
    assert finding.title.startswith(said)
    assert finding.title.endswith(named)
    assert finding.recommendation.startswith(advice)


def test_no_phase_is_named_where_none_has_half_of_the_short_gaps(tmp_path):
    trace = busy(TraceBuilder(), 201, 15 * US, 30 * US)
    for at in range(0, 201, 3):
        trace.nvtx(f"part {chr(97 + at % 5)}", at * 45 * US - 8 * US, (at + 2) * 45 * US - 8 * US)
    (finding,) = of_rule(run_on(tmp_path, trace), "launch_bound")
    assert finding.title.endswith("in short gaps")


def small_copies(trace, *, queued, kernels_n=0, copies_n=200):
    """Add copies of 32 KB 4 us apart, launched before the first or each at the last moment."""
    for nth in range(copies_n):
        at = nth * 10 * US
        lead = (-5 * US * (copies_n - nth), -5 * US * (copies_n - nth) + US)
        launch = lead if queued else (at - 5 * US, at - US)
        if nth % 10 < kernels_n:
            trace.kernel("k", start_ns=at, duration_ns=6 * US, launch=launch)
        else:
            trace.memcpy("HtoD", start_ns=at, duration_ns=6 * US, size_bytes=1 << 15, launch=launch)
    return trace


@pytest.mark.parametrize(
    ("queued", "rule", "title"),
    [
        (True, "queued_gaps", "Gaps between queued HtoD copies: 39.9 %"),
        (
            False,
            "launch_bound",
            "Rank 0's host launches too slowly: its GPU idles 39.9 % in short gaps between "
            "HtoD copies",
        ),
    ],
)
def test_gaps_between_small_copies_are_none_between_kernels(tmp_path, queued, rule, title):
    (finding,) = of_rule(run_on(tmp_path, small_copies(TraceBuilder(), queued=queued)), rule)
    assert finding.title == title
    assert finding.recommendation.startswith("Batch them")
    assert finding.price.about_ns == 199 * 4 * US


def test_a_few_copies_between_kernels_make_no_gaps_between_copies(tmp_path):
    trace = small_copies(TraceBuilder(), queued=True, kernels_n=8)
    (finding,) = of_rule(run_on(tmp_path, trace), "queued_gaps")
    assert finding.title == "Gaps between queued kernels: 39.9 %"
    assert finding.price.about_ns == 199 * 2 * US


@pytest.mark.parametrize(("gap_us", "severity"), [(10, None), (11, "low")])
def test_less_than_what_two_runs_differ_by_is_no_finding(tmp_path, gap_us, severity):
    # Kernels of 1 ms, so 1 % is 10.1 us.
    tables = run_on(tmp_path, busy(TraceBuilder(), 201, gap_us * US))
    (found_one,) = findings(tables) or [None]
    assert (found_one and found_one.severity) == severity


def test_a_device_used_for_a_moment_does_not_make_a_finding_high(tmp_path):
    trace = busy(TraceBuilder(), 201, 30 * US)
    for at in (0, 90 * US):
        trace.kernel("p2p", start_ns=at, end_ns=at + US, launch=(at - 9, at - 8), device_id=1)
    (finding,) = findings(run_on(tmp_path, trace))
    # 30 of 1030 us, and not 89 of 91.
    assert (finding.severity, finding.device_id) == ("low", 0)


def test_gaps_between_queued_operations_are_not_the_host_s(tmp_path):
    trace, at = TraceBuilder(), 0
    for number in range(101):
        times = (at, at + 30 * US)
        lead = (-9 * MS + number * 9, -9 * MS + number * 9 + 5)
        trace.kernel("k", start_ns=times[0], end_ns=times[1], launch=lead)
        at += 45 * US
    tables = run_on(tmp_path, trace)
    assert [finding.rule for finding in findings(tables)] == ["queued_gaps"]


def test_a_rank_that_idles_more_is_named_with_its_cause(tmp_path):
    traces = [
        busy(TraceBuilder(hostname=f"n{rank}", utc_epoch_ns=None), 20, gap)
        for rank, gap in enumerate((20 * US, 20 * US, 400 * US))
    ]
    tables = run_on(tmp_path, *traces)
    (finding,) = of_rule(tables, "host_work")
    # 19 times 400 us in 27.6 ms, against 19 times 20 in 20.4 ms.
    assert (finding.rank, finding.severity, finding.cause) == (2, "high", Cause("host", rank=2))
    assert finding.price.gain_ns == 19 * 400 * US
    assert "others lose 380 us" in finding.details
    assert answer(tables).startswith(
        "Rank 2's GPU is idle for 27.5 % of the time (7.6 ms of 27.6 ms)"
    )


@pytest.mark.slow
def test_hosts_that_are_late_on_all_ranks_are_to_blame(tmp_path):
    traces = [busy(TraceBuilder(hostname="n", system_clock_ns=7), 10, 2 * MS, MS) for _ in range(3)]
    tables = run_on(tmp_path, *traces)
    (finding,) = of_rule(tables, "host_work")
    assert finding.price.gain_ns == 9 * 2 * MS
    assert finding.ranks == (0, 1, 2)
    assert not of_rule(tables, "late_rank")


def test_long_gaps_of_two_ranks_that_send_may_be_a_bubble(tmp_path):
    traces = []
    for _ in range(2):
        trace, at = TraceBuilder(hostname="n", system_clock_ns=7), 0
        for _ in range(20):
            for name in ("k", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"):
                trace.kernel(name, start_ns=at, end_ns=at + MS, launch=(at - 5 * US, at - US))
                at += MS
            at += 2 * MS
        traces.append(trace)
    (finding,) = of_rule(run_on(tmp_path, *traces), "host_work")
    assert "pipeline bubble" in finding.title


def test_copies_that_left_nothing_on_the_gpu_make_idle_time_a_bound(tmp_path):
    trace = busy(TraceBuilder(), 20, 400 * US)
    for number in range(12):
        trace.api("cudaMemcpyAsync_v3020", start_ns=MS + number * 9, end_ns=MS + number * 9 + 5)
    tables = run_on(tmp_path, trace)
    (finding,) = of_rule(tables, "copies_not_traced")
    assert "Of 12 calls that copy or fill on rank 0, 0 left" in finding.details


def test_idle_time_without_launches_is_told_and_not_explained(tmp_path):
    trace = TraceBuilder()
    for number in range(10):
        trace.kernel("k", start_ns=2 * MS * number, end_ns=2 * MS * number + MS)
    rules = [finding.rule for finding in findings(run_on(tmp_path, trace))]
    assert rules == ["idle_without_launch"]


def test_time_that_is_not_recorded_is_never_a_finding(tmp_path):
    trace = busy(TraceBuilder(schema="3.7.2"), 20, 4 * MS)
    for number in range(19):
        at = (5 * number + 1) * MS
        trace.api("cudaGraphLaunch_v10000", start_ns=at, duration_ns=US)
    tables = run_on(tmp_path, trace)
    assert findings(tables) == []
    assert "more is not recorded" in answer(tables)


def test_a_gpu_that_copies_is_not_idle(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=MS)
    trace.memcpy("HtoD", start_ns=MS, end_ns=90 * MS, size_bytes=8)
    trace.kernel("k", start_ns=90 * MS, end_ns=91 * MS)
    tables = run_on(tmp_path, trace)
    assert findings(tables) == []
    assert caveats(tables) == [
        "Rank 0 copied for 89 ms without a kernel. Tools that look only at kernels report it as "
        "97.8 % idle; it was 0.0 %."
    ]


def test_a_window_of_a_filter_is_said(tmp_path):
    tables = run_on(tmp_path, busy(TraceBuilder(), 9, US), options=["--filter-time", "0/5ms"])
    assert "window of the filter" in caveats(tables)[0]


def test_nothing_in_the_window_has_an_answer(tmp_path):
    trace = busy(TraceBuilder().nvtx("none", 1, 2, tid=99), 3, US)
    tables = run_on(tmp_path, trace, options=["--filter-nvtx", "none"])
    assert findings(tables) == []
    assert answer(tables).startswith("Nothing ran on a GPU")


@pytest.mark.parametrize(("checkpoints_n", "is_named"), [(6, True), (2, False)])
def test_a_range_is_named_with_its_own_share_if_it_holds_half_of_the_idle_time(
    tmp_path, checkpoints_n, is_named
):
    # Ten gaps of 2 ms; the longest is in a checkpoint.
    trace = busy(TraceBuilder(), 10, 2 * MS)
    trace.kernel("k", start_ns=30 * MS + US, duration_ns=MS, launch=(30 * MS - 5 * US, 30 * MS))
    for step in range(10):
        name = "save_checkpoint" if step >= 10 - checkpoints_n else f"other {chr(97 + step)}"
        trace.nvtx(name, 3 * step * MS + MS, 3 * (step + 1) * MS - 6 * US)
    (finding,) = of_rule(run_on(tmp_path, trace), "host_work")
    assert finding.title.startswith("Rank 0's host is late: its GPU idles 64.5 %")
    assert finding.title.endswith(", 38.7 % in `save_checkpoint`") == is_named
    assert ("Checkpoints are written" in finding.recommendation) == is_named
    assert "data loader" not in finding.recommendation
