"""The first words of an overview: what a load, few steps or unrecorded work change in them."""

from __future__ import annotations

import pytest
from quick_run import quick_part
from trace_builder import TraceBuilder

pytestmark = pytest.mark.slow

MS = 1_000_000


def overview(trace, folder):
    """Return the report of an overview, and those of its recipes."""
    part = quick_part("llm_overview", trace.write_sqlite(folder / "rank0.sqlite"))
    return part.report, part.parts


def loaded(*, named):
    """60 ms of copies that load a model, then four forward passes of 10 ms."""
    trace = TraceBuilder()
    trace.memcpy(
        "HtoD", start_ns=2 * MS, duration_ns=60 * MS, size_bytes=2**30, launch=(MS, 62 * MS)
    )
    if named:
        trace.nvtx("init_model", 0, 63 * MS)
    for step in range(4):
        start_ns = (64 + 11 * step) * MS
        if named:
            trace.nvtx("forward", start_ns, start_ns + 10 * MS)
        for launch in range(2):
            at_ns = start_ns + launch * 5 * MS
            trace.kernel(
                f"gemm_{launch}",
                start_ns=at_ns + 100_000,
                duration_ns=4_800_000,
                launch=(at_ns + 1_000, at_ns + 9_000),
            )
    return trace


@pytest.mark.slow
def test_a_load_is_no_part_of_steps_and_phases_and_changes_no_first_word(tmp_path):
    (tmp_path / "named").mkdir()
    plain, _ = overview(loaded(named=False), tmp_path)
    named, parts = overview(loaded(named=True), tmp_path / "named")
    (without,), (with_steps,) = plain.wall, named.wall
    assert without.bound == with_steps.bound
    # Without steps nothing is known to come before them.
    shares = [{part.label: part.share_pct for part in line.parts} for line in (without, with_steps)]
    assert shares[1].pop("start-up") + shares[1]["idle"] == pytest.approx(shares[0].pop("idle"))
    assert shares[0].items() <= shares[1].items()
    causes = [[item.cause for item in report.opportunities] for report in (plain, named)]
    assert causes[0] == causes[1] != []
    assert "4 steps of" in named.screen.facts
    phases = parts["nvtx_phase_attribution"].tables["phases"].set_index("phase")
    assert phases["gpu_ns"].to_dict() | {"model loading": 60 * MS, "forward": 38_400_000} == (
        phases["gpu_ns"].to_dict()
    )
    assert phases["step_ns"].sum() == phases.loc["forward", "step_ns"] == 9_600_000


def sampled(active_pct):
    """One kernel of 1 ms in 100 ms, beside samples of how many SMs are active."""
    trace = TraceBuilder()
    for start_ns in (20_000, 99 * MS + 500_000):
        launch = (start_ns - 15_000, start_ns - 5_000)
        trace.kernel("gemm", start_ns=start_ns, duration_ns=500_000, launch=launch)
    times_ns = [MS * at for at in range(1, 100)]
    return trace.gpu_metrics(
        {"SMs Active [Throughput %]": [active_pct] * len(times_ns)}, times_ns=times_ns
    )


@pytest.mark.parametrize(("active_pct", "is_told"), [(95, True), (40, False)])
def test_idle_time_in_which_sms_are_active_is_none(tmp_path, active_pct, is_told):
    report, parts = overview(sampled(active_pct), tmp_path)
    remarks = [finding.title for finding in report.remarks]
    title = f"Most GPU work is not recorded: SMs are active {active_pct}.0 % of the time"
    assert (title in remarks) == is_told
    assert (report.wall[0].bound.word == "WORK NOT RECORDED") == is_told
    assert (report.opportunities == []) == is_told
    if is_told:
        assert report.screen.trust == title
        assert report.answer.endswith("; most of the GPU's work is not recorded.")
        assert report.wall[0].parts[0].text == "idle or not recorded 99.0 %"
        assert "Most of its work is not recorded" in parts["llm_hotspots"].report.answer
    assert any(item.cause for item in parts["idle_gaps"].report.opportunities)


def test_where_nothing_gains_the_largest_part_is_said_and_no_other(tmp_path):
    trace = TraceBuilder().kernel("gemm", start_ns=0, duration_ns=100 * MS)
    report, _ = overview(trace.kernel("other", start_ns=100 * MS, duration_ns=MS), tmp_path)
    assert report.answer.endswith("or more. The largest part of the time is GEMM, 99.0 %.")
