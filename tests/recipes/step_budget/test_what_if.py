"""Replays against simulated jobs that are run again with the change."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from random import Random

import pytest
from effort import at_night, nightly_but
from gain_checks import check_findings, listed
from judgement.jobs import job, layers, one_rank
from judgement.truth import planted
from machine import changes, oracle, random_program, scenarios, simulate
from machine.program import Sync
from path_truth import budget, finds_its_steps, matched
from replay_truth import rewritten, steady, steps_ns, true_steps_ns, truths

from nsys_llm.core.errors import UsageError
from nsys_llm.critical_path.job import meetings
from nsys_llm.manifest.what_if import parse_change
from nsys_llm.recipes.step_budget.findings.on_path import findings

#: Other jobs in each run; a failure names its seed.
FRESH = 100
#: Jobs with edges that have to be inferred.
UNCERTAIN = 6
#: How far replays may be from the truth, percent of the true steps.
NEAR_PCT = 1.0


@pytest.fixture
def every_meeting(monkeypatch):
    """Believe all matched collectives: jobs of a few steps have too few to be sure of."""
    monkeypatch.setattr(meetings, "LOW_CONFIDENCE", "never")


def asked(words):
    return [word for change in words for word in ("--what-if", change)]


def predictions(tables):
    """Return then_ns and now_ns of all steps by change; of what no rank has, now_ns twice."""
    steps_n = int((tables["job_steps"]["mark"] == "").sum())
    table = tables["what_if"]
    rows = table.assign(then_ns=table["then_ns"].fillna(table["now_ns"])).to_dict("records")
    return {row["change"]: (row["then_ns"] * steps_n, row["now_ns"] * steps_n) for row in rows}


def errors_of(folder, seed):
    """Return how far each replay of a random job is from the truth, percent of the true steps."""
    program = steady(random_program(seed, certain=True))
    try:
        words = [change for change, _ in truths(program, matched=True)]
        outcome, tables = budget(folder / str(seed), program, *asked([*words, "kernel:e=1"]))
        if not finds_its_steps(outcome, tables) or tables["rank_edges"]["reason"].notna().any():
            return []
        predicted, job = predictions(tables), tables["job_steps"]
        if int(job["wall_ns"].sum()) != steps_ns(outcome, outcome) or (job["mark"] != "").any():
            return []
        assert predicted["kernel:e=1"][0] == predicted["kernel:e=1"][1]
        errors = []
        for change, other in truths(program, matched=matched(tables)):
            true_ns = true_steps_ns(other, outcome)
            errors.append(100 * abs(predicted[change][0] - true_ns) / true_ns)
            assert errors[-1] <= NEAR_PCT, change
    except Exception as error:
        raise AssertionError(f"random_program({seed}, certain=True)") from error
    return errors


def check(folder, seeds):
    errors = [errors_of(folder, seed) for seed in seeds]
    assert sum(map(bool, errors)) > len(errors) / 2


@pytest.mark.nightly
def test_replays_of_random_jobs_are_near_the_jobs_run_again(tmp_path, every_meeting):
    check(tmp_path, [random.SystemRandom().randrange(1 << 30) for _ in range(FRESH)])


@pytest.mark.slow
def test_what_changes_nothing_gives_the_run_back_on_any_job(tmp_path, every_meeting):
    told_n = 0
    for seed in range(UNCERTAIN):
        rows = {"event_rows": seed % 2 == 0, "sync_rows": seed % 3 > 0}
        _, tables = budget(
            tmp_path / str(seed), random_program(seed), "--what-if", "kernel:e=1", **rows
        )
        if len(tables["what_if"]):
            then_ns, now_ns = predictions(tables)["kernel:e=1"]
            assert then_ns == now_ns, seed
            told_n += 1
    assert told_n > UNCERTAIN / 2


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [551, 648, 497])
def test_ranks_that_begin_apart_begin_together_with_an_infinitely_fast_host(
    tmp_path, every_meeting, seed
):
    program = steady(random_program(seed, certain=True))
    outcome, tables = budget(tmp_path, program, *asked(["host=0", "host=1"]))
    fast = dict(truths(program, matched=False))["host=0"]
    predicted = predictions(tables)
    assert predicted["host=0"][0] == true_steps_ns(fast, outcome)
    assert predicted["host=1"][0] == predicted["host=1"][1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks_n", "seed"), [(2, 1), (3, 14), (5, 21), *at_night((2, 4), (3, 15))]
)
def test_what_a_slow_rank_is_late_by_chance_stays_in_its_replay(tmp_path, ranks_n, seed):
    def plain(make, rank, step):
        return layers(make)

    even = job(Random(seed), plain, ranks_n=ranks_n)
    outcome, tables = budget(tmp_path, one_rank(even, 1, gpu_pct=115))
    true_ns, (then_ns, now_ns) = true_steps_ns(even, outcome), predictions(tables)["rank:rank1"]
    assert abs(then_ns - true_ns) <= 0.002 * now_ns


@pytest.mark.slow
# What hosts of seed 0 wait for is not recorded: no replay counts there.
@pytest.mark.parametrize("seed", nightly_but([(1,), (2,), (3,)], [(2,)]))
def test_a_slow_machine_is_replayed_with_all_of_its_ranks(tmp_path, seed):
    program, healed, wanted = planted("slow_machine", seed)
    outcome, tables = budget(tmp_path, program)
    host = program.ranks[wanted[0].rank].host
    (change,) = [name for name in predictions(tables) if name.startswith(("rank:", "machine:"))]
    then_ns, _ = predictions(tables)[change]
    true_ns = true_steps_ns(healed, outcome)
    assert change == f"machine:{host}"
    assert abs(then_ns - true_ns) <= NEAR_PCT / 100 * true_ns
    price = listed(findings(tables), tables)[0].price
    assert (price.about_basis, price.replay_reason) == ("replay", None)
    assert price.bound_ns >= steps_ns(outcome, outcome) - true_ns


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["sync_in_step", "two_faults"])
def test_a_wait_gains_what_the_job_without_it_gains(tmp_path, name):
    program = scenarios.SCENARIOS[name]()
    outcome, tables = budget(tmp_path, program)
    true_ns = true_steps_ns(changes.without_fault(program, "sync"), outcome)
    then_ns, now_ns = predictions(tables)["wait:cudaDeviceSynchronize"]
    assert abs(then_ns - true_ns) <= NEAR_PCT / 100 * true_ns
    assert now_ns - true_ns > 0.05 * now_ns
    shown = listed(findings(tables), tables)
    check_findings(shown, tables)
    wait = next(finding for finding in shown if finding.name == "cudaDeviceSynchronize")
    assert (wait.price.about_basis, wait.price.bound_ns) == ("replay", None)
    gain_step_ns = (now_ns - then_ns) / len(tables["job_steps"])
    assert wait.price.gain_step_ns == pytest.approx(gain_step_ns, rel=0.2)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["gpu_bound", "overlap", "slow_gpu", "sync_in_step"])
def test_shorter_work_gains_more_the_shorter_and_at_most_its_ceiling(tmp_path, name):
    words = [f"kernel:nvjet={factor:g}" for factor in (0, 0.5, 0.9, 1)]
    _, tables = budget(tmp_path, scenarios.SCENARIOS[name](), *asked(words))
    then = [predictions(tables)[word][0] for word in words]
    now_ns = predictions(tables)[words[0]][1]
    assert then == sorted(then)
    assert then[-1] == now_ns
    rows = tables["ceilings"]
    kernel = rows[(rows["change"] == "kernel") & rows["name"].str.contains("nvjet")].iloc[0]
    most_ns = kernel["path_ns"] * len(tables["job_steps"])
    for ns, factor in zip(then, (0, 0.5, 0.9, 1), strict=True):
        assert now_ns - ns <= (1 - factor) * most_ns + 1_000


@pytest.mark.nightly
def test_where_lags_are_never_alike_no_change_is_told_and_why(tmp_path):
    program = scenarios.host_bound_decode()
    wakes_ns = itertools.cycle((0, 400_000))

    def uneven(action):
        return replace(action, wake_ns=next(wakes_ns)) if isinstance(action, Sync) else action

    _, tables = budget(tmp_path, rewritten(program, uneven), "--what-if", "host=0.5")
    assert tables["replay"]["residual_pct"].abs().mean() > 3
    assert tables["what_if"].empty
    assert tables["rank_edges"]["replay_reason"].str.contains("usual lags").all()


def test_what_limits_next_is_most_of_the_path_of_the_job_run_again(tmp_path):
    program = scenarios.host_bound_decode()
    _, tables = budget(tmp_path, program)
    row = tables["what_if"].set_index("change").loc["device=0"]
    fast = simulate(changes.with_fast_device(program))
    true = oracle.run_path(fast, rule="binding").by_class()
    assert row["next_limit"] == max(true, key=lambda name: true[name])
    assert row["certain_pct"] == 100


def test_what_no_rank_has_gains_nothing_that_is_known_and_what_is_asked_stands_first(tmp_path):
    unknown = ["category:nosuch=0.5", "kernel:nosuch=0.5", "wait:nosuch", "rank:nosuch"]
    words = [*unknown, "rank:rank0", "kernel:nvjet=1", "kernel:nvjet=1.0"]
    _, tables = budget(tmp_path, scenarios.gpu_bound(), *asked(words))
    rows = tables["what_if"]
    assert set(rows["change"].head(6)) == {*unknown, "rank:rank0", "kernel:nvjet=1"}
    assert rows["change"].is_unique
    gains = rows.set_index("change")["gain_ns"]
    assert gains[unknown].isna().all()
    assert gains.drop(unknown).notna().all()
    assert gains["kernel:nvjet=1"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["gpu_bound", "host_bound_decode"])
def test_some_steps_replayed_are_near_the_same_steps_of_the_job_run_again(tmp_path, name):
    program = steady(scenarios.SCENARIOS[name]())
    every = dict(truths(program, matched=False))
    _, tables = budget(tmp_path, program, "--steps", "3:6", *asked(every))
    for change, other in every.items():
        ends = oracle.job_bounds(simulate(other))
        true_ns, (then_ns, _) = ends[6] - ends[3], predictions(tables)[change]
        assert abs(then_ns - true_ns) <= NEAR_PCT / 100 * true_ns, change


@pytest.mark.parametrize(
    "text",
    [
        *("gemm=0.8", "category:gemm", "copies", "host=-1", "launches", "rank:", "wait:", "x=y"),
        *("category:=0.5", "transfer:x=0.5", "copies=5ns", "launches=0.5", "launches=inf"),
        *("category:gemm=nan", "host=nan", "device=inf", "kernel:a=1e300", "launches=nan", ""),
    ],
)
def test_a_change_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="--what-if"):
        parse_change(text)


@pytest.mark.parametrize(
    "text",
    [
        *("category:gemm=0.8", "copies=0", "launches=500ns", "wait:cudaMemcpy", "kernel:a=b=0.5"),
        *("launches=999999999ns", "category:gemm=0.12345678", "rank:tp=1", "kernel:ns::f=2"),
        "kernels:old_attention",
    ],
)
def test_a_change_is_written_as_it_was_typed(text):
    assert parse_change(text).text == text
