"""Ceilings against true gains: the simulated job is run again without the fault."""

from __future__ import annotations

import itertools

import pytest
from effort import nightly_but
from gain_checks import check_findings
from machine import changes, scenarios, simulate
from path_truth import budget
from quick_run import quick

from nsys_llm.recipes.step_budget.findings.gains import findings
from nsys_llm.report.findings import ranked

SYNC = "cudaDeviceSynchronize"
#: The rule of the finding on each planted fault.
FAULTS = {"late_host": "path_straggler", "sync": "path_waits"}


def change(tables, kind, name):
    """Return the time of a row of ceilings over all steps, and whether it is a bound."""
    rows = tables["ceilings"]
    row = rows[(rows["change"] == kind) & (rows["name"] == name)].iloc[0]
    steps_n = int((tables["job_steps"]["mark"] == "").sum())
    return row["path_ns"] * steps_n, bool(row["is_bound"])


def gain_ns(outcome, program):
    return outcome.wall_ns - simulate(program).wall_ns


def test_a_slow_gpu_gains_at_most_its_ceiling_and_not_much_less(tmp_path):
    program = scenarios.slow_gpu()
    outcome, tables = budget(tmp_path, program)
    gained_ns = gain_ns(outcome, changes.without_slow_rank(program, 1))
    most_ns, is_bound = change(tables, "straggler", "rank1")
    assert is_bound
    assert 0.8 * most_ns < gained_ns <= most_ns


def test_a_late_host_gains_at_most_its_ceiling_and_not_much_less(tmp_path):
    program = scenarios.late_host()
    outcome, tables = budget(tmp_path, program)
    gained_ns = gain_ns(outcome, changes.without_fault(program, "late_host"))
    most_ns, is_bound = change(tables, "straggler", "rank2")
    assert is_bound
    assert 0.8 * most_ns < gained_ns <= most_ns


@pytest.mark.parametrize("scale", [0.5, 0.0])
@pytest.mark.parametrize("name", ["gpu_bound", "overlap", "slow_gpu", "sync_in_step"])
def test_shorter_kernels_gain_at_most_what_the_run_spends_on_them(tmp_path, name, scale):
    program = scenarios.SCENARIOS[name]()
    outcome, tables = budget(tmp_path, program)
    kernel = tables["ceilings"][tables["ceilings"]["change"] == "kernel"].iloc[0]["name"]
    gained_ns = gain_ns(outcome, changes.with_scaled(program, kernel, scale))
    most_ns, is_bound = change(tables, "kernel", kernel)
    assert is_bound
    assert 0 <= gained_ns <= (1 - scale) * most_ns + 1_000


def test_launches_that_hold_kernels_back_have_a_ceiling_that_holds(tmp_path):
    program = scenarios.balanced_launches()
    outcome, tables = budget(tmp_path, program)
    gained_ns = gain_ns(outcome, changes.with_launch_price(program, 3500))
    most_ns, is_bound = change(tables, "class", "launch_api")
    assert is_bound
    # Calls take 4,000 ns, a little longer than the kernels: each of those ends after the next
    # launch has returned, but does not hold it back.
    assert 0.05 * outcome.wall_ns < gained_ns <= most_ns * 500 / 4_000


@pytest.mark.parametrize(
    ("late_ns", "waits_n"),
    nightly_but(
        itertools.product((10_000, 60_000, 150_000, 300_000), (1, 3, 8)),
        # Two near ties, a late host that chance explains, and one that it does not.
        [(60_000, 3), (150_000, 8), (10_000, 8), (300_000, 3)],
    ),
)
def test_two_faults_rank_as_their_true_gains_do(tmp_path, late_ns, waits_n):
    # A host that is late by less than steps vary is told from chance by more of them.
    steps_n = 30 if late_ns < 60_000 else 6
    program = scenarios.two_faults(steps_n=steps_n, late_ns=late_ns, waits_n=waits_n)
    outcome, tables = budget(tmp_path, program)
    true = {fault: gain_ns(outcome, changes.without_fault(program, fault)) for fault in FAULTS}
    planted = tables["findings"]["name"].isna() | (tables["findings"]["name"] == SYNC)
    findings = tables["findings"][planted & tables["findings"]["rule"].isin(FAULTS.values())]
    rules = findings["rule"].tolist()
    assert rules
    assert (
        rules == [FAULTS[name] for name in sorted(true, key=true.get, reverse=True)][: len(rules)]
    )
    if FAULTS["late_host"] in rules:
        late = findings.set_index("rule").loc[FAULTS["late_host"]]
        assert (late["rank"], bool(late["gain_is_bound"])) == (1, True)
        assert late["gain_ns"] >= true["late_host"]
    assert not findings["gain_is_bound"][findings["name"] == SYNC].any()


@pytest.mark.parametrize("name", ["slow_gpu", "late_host", "two_faults", "gpu_bound"])
def test_a_rank_as_early_as_the_median_one_gains_at_most_what_it_is_late(tmp_path, name):
    program = scenarios.SCENARIOS[name]()
    labels = [f"rank{place}" for place in range(len(program.ranks))]
    asked = [word for label in labels for word in ("--what-if", f"rank:{label}")]
    _, tables = budget(tmp_path, program, *asked)
    replayed = tables["what_if"].set_index("change")["gain_ns"]
    late = tables["ceilings"].query("change == 'straggler'").set_index("name")
    assert late["is_bound"].all()
    # It is not only what the path shows, and nobody is told so.
    rows = tables["findings"].query("rule == 'path_straggler'")
    assert rows["details"].str.contains("later than the median rank, in all collectives").all()
    assert not rows["details"].str.contains("on the path through").any()
    for label in labels:
        assert replayed[f"rank:{label}"] <= late["path_ns"].get(label, 0.0) + 1.0, label


def test_even_ranks_have_no_straggler_worth_a_word(tmp_path):
    _, tables = budget(tmp_path, scenarios.gpu_bound(ranks_n=4))
    assert "path_straggler" not in set(tables["findings"]["rule"])


def test_a_wait_is_never_a_bound_and_has_no_ceiling(tmp_path):
    _, tables = budget(tmp_path, scenarios.sync_in_step())
    rows = tables["ceilings"]
    edges = rows[(rows["change"] == "wait") | rows["name"].isin(["host_sync", "sync_memop"])]
    assert len(edges)
    assert not edges["is_bound"].any()
    assert edges["ceiling_pct"].isna().all()


def test_where_communication_is_not_matched_nothing_is_a_bound(tmp_path):
    _, tables = budget(tmp_path, scenarios.pipeline())
    assert (tables["job_steps"]["communication_ns"] > 0).all()
    assert not tables["ceilings"]["is_bound"].any()
    assert tables["ceilings"]["ceiling_pct"].isna().all()


@pytest.mark.parametrize("name", sorted(scenarios.SCENARIOS))
def test_gains_fit_into_their_gpu_and_numbers_are_those_of_tables(tmp_path, name):
    _, tables = budget(tmp_path, scenarios.SCENARIOS[name](), event_rows=False)
    check_findings(ranked(findings(tables)), tables)


@pytest.mark.parametrize("name", sorted(scenarios.SCENARIOS))
def test_a_gain_is_as_large_a_share_of_a_step_as_of_the_span(tmp_path, name):
    _, tables = budget(tmp_path, scenarios.SCENARIOS[name](), event_rows=False)
    steps = tables["job_steps"]
    mean_ns = steps.loc[steps["mark"] == "", "wall_ns"].mean()
    gains = [finding.gain for finding in ranked(findings(tables)) if finding.gain is not None]
    by_step = [gain for gain in gains if gain.gain_step_ns is not None]
    stepped = tables["rank_edges"]["step_unit"].notna().any()
    assert len(by_step) == (len(gains) if stepped else 0)
    # A run without steps has no rare slow ones.
    assert stepped or all(gain.tail_pct is None for gain in gains)
    for gain in by_step:
        assert gain.gain_step_ns / mean_ns == pytest.approx(gain.gain_pct / 100)


@pytest.mark.parametrize(("beyond_ns", "is_bound"), [(-1, True), (0, True), (5_000, False)])
def test_time_in_copies_is_no_bound_where_a_run_without_them_gains_more(
    tmp_path, beyond_ns, is_bound
):
    _, tables = budget(tmp_path, scenarios.pageable_copies(), event_rows=False)
    rows = tables["ceilings"]
    (path_ns,) = rows[(rows["change"] == "class") & (rows["name"] == "copy")]["path_ns"]
    replays = tables["what_if"].copy()
    replays["gain_ns"] = replays["gain_ns"].astype("float64")
    replays.loc[replays["change"] == "copies=0", "gain_ns"] = path_ns + beyond_ns
    tables = {**tables, "what_if": replays}
    (gain,) = (finding.gain for finding in findings(tables) if finding.rule == "path_copies")
    steps_n = int((tables["job_steps"]["mark"] == "").sum())
    assert (gain.is_bound, gain.basis) == (is_bound, "path" if is_bound else "replay")
    assert gain.gain_ns == round((path_ns + max(beyond_ns, 0)) * steps_n)


@pytest.mark.parametrize("run", ["before", "after"])
def test_gains_of_real_traces_fit_too(traces, run):
    tables = quick("step_budget", traces / "h100_mfu_ranks" / run)
    shown = ranked(findings(tables))
    # Host work and launch calls on the path are part of the wait that exposes them.
    assert {finding.rule for finding in shown} == {"path_waits", "path_transfer"}
    check_findings(shown, tables)
