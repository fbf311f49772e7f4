"""llm_overview: one read, the tables of single runs, and every finding accounted for."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import chain

import pytest
from command_line import run
from effort import nightly_but, seeds
from machine.parts import GEMM, ranked
from machine.profile_writer import write_profiles
from machine.program import Program, Sync
from machine.scenarios import late_host, pageable_copies
from machine.simulation import simulate
from quick_run import quick
from results import analyse, differences, read_frames, read_report, read_results

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.llm_overview.tables.opportunities import (
    Opportunity,
    _overlap,
    grouped_findings,
    opportunity_rows,
)
from nsys_llm.report.findings import CAPTURE, Finding
from nsys_llm.report.gains import Gain
from nsys_llm.testing.demo import write_demo
from nsys_llm.testing.trace_builder import TraceBuilder

PARTS = load_manifest("llm_overview").recipes


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return tmp_path_factory.mktemp("overview")


@pytest.fixture(scope="module", autouse=True)
def planted(demo):
    return write_demo(demo, scale=0.1).planted


@pytest.fixture(scope="module")
def result(demo):
    return analyse(demo / "out", demo / "after", recipe="llm_overview")


@pytest.mark.parametrize("recipe", nightly_but(PARTS, ["idle_gaps", "step_budget"]))
def test_each_recipe_has_the_tables_and_the_record_of_a_run_of_its_own(demo, result, recipe):
    single = analyse(demo / f"single-{recipe}", demo / "after", recipe=recipe)
    assert differences(read_results(single), read_results(result / recipe)) == []
    overview_record, its = read_report(result / recipe), read_report(single)
    assert overview_record == its


@pytest.mark.parametrize("recipe", nightly_but(PARTS, ["tail_stats"]))
def test_so_it_is_under_filters_too(demo, recipe):
    words = ("--device", "0", "--steps", "1:4")
    some = analyse(demo / f"some-{recipe}", demo / "after", *words, recipe=recipe)
    whole = analyse(
        demo / f"part-{recipe}", demo / "after", *words, "--only", recipe, recipe="llm_overview"
    )
    assert differences(read_results(some), read_results(whole / recipe)) == []


def test_every_finding_is_listed_merged_or_a_remark(result):
    tables = read_frames(result)
    rows, listed = tables["all_findings"], tables["opportunities"]
    findings_n = sum(len(read_report(result / name)["report"]["findings"]) for name in PARTS)
    assert len(rows) == findings_n
    leads = rows[rows["account"] == "lead"]
    assert sorted(leads["opportunity"]) == sorted(listed["opportunity"])
    merged = rows[rows["account"].isin(["lead", "merged"])]
    assert merged["opportunity"].isin(listed["opportunity"]).all()
    assert merged.groupby("opportunity").size().tolist() == listed["findings_n"].tolist()
    others = rows[rows["opportunity"].isna()]
    assert set(others["account"]) <= {CAPTURE, "improvement"}


def test_an_opportunity_gains_what_its_largest_finding_does(result):
    tables = read_frames(result)
    rows = tables["all_findings"].dropna(subset=["opportunity"])
    rows = rows[(rows["account"] == "lead") | (rows["rule"] != "idle_before_phase")]
    largest = rows.groupby("opportunity")["gain_pct"].max()
    for row in tables["opportunities"].itertuples():
        assert row.gain_pct == largest[row.opportunity]


def test_the_finding_of_an_opportunity_begins_with_its_lead(result):
    tables = read_frames(result)
    findings = read_report(result)["report"]["findings"]
    rows = tables["all_findings"].dropna(subset=["opportunity"])
    assert len(tables["opportunities"])
    for row, record in zip(tables["opportunities"].itertuples(), findings, strict=False):
        others = rows[(rows["opportunity"] == row.opportunity) & (rows["account"] == "merged")]
        assert record["title"] == row.title
        assert record["details"].startswith(row.details)
        also = record["details"][len(row.details) :]
        assert also.count("(`") == len(others)
        assert all(f"{title} (`" in also for title in others["title"])
        assert record["gain_step_ns"] == pytest.approx(row.gain_step_ns, rel=1e-12)


def test_a_slow_rank_is_the_first_opportunity_and_one_item(planted, result):
    rows = read_frames(result)["opportunities"]
    slow = rows[rows["culprit"] == f"rank:{planted.slow_rank}"]
    assert slow["opportunity"].tolist() == [1]
    assert len(slow["recipes"].iloc[0].split(", ")) >= 2


def test_what_every_run_remarks_stands_once(demo, tmp_path):
    words = ("--world-size", "5", "--allow-missing-ranks")
    out = analyse(tmp_path / "out", demo / "after", *words, recipe="llm_overview")
    rules = [record["rule"] for record in read_report(out)["report"]["findings"]]
    assert rules.count("missing_ranks") == 1


def test_the_files_are_listed_and_the_folder_can_be_replaced(demo, result):
    record = json.loads(next(result.glob("*.nsys-analysis")).read_text("utf-8"))
    assert "idle_gaps/gaps.parquet" in record["Outputs"]
    inner = json.loads((result / "idle_gaps/idle_gaps.nsys-analysis").read_text("utf-8"))
    assert inner["RecipeName"] == "idle_gaps"
    assert "gaps.parquet" in inner["Files"]
    words = ["--mode", "none", "--output", result, "--force-overwrite", "--quiet"]
    assert run(*words, "--input", demo / "after", recipe="llm_overview").code == 0


def test_notebooks_of_the_recipes_are_written_on_request(demo, result):
    assert not (result / "idle_gaps/report.md").exists()
    words = ("--notebooks", "--only", "idle_gaps")
    out = analyse(demo / "notebooks", demo / "after", *words, recipe="llm_overview")
    assert (out / "idle_gaps/report.md").exists()
    assert (out / "idle_gaps/analysis.ipynb").exists()
    assert not (out / "tail_stats").exists()


def test_a_recipe_that_is_not_there_is_one_line(demo, tmp_path):
    words = ["--only", "idle_gaps,nothing", "--output", tmp_path / "out"]
    ended = run(*words, "--input", demo / "after", recipe="llm_overview")
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert "--only: no recipe 'nothing'; there are: " in ended.errors[0]


def test_profiles_without_gpu_work_are_not_said_to_be_in_order(tmp_path):
    TraceBuilder().nvtx("work", 0, 1_000).write_sqlite(tmp_path / "rank0.sqlite")
    out = analyse(tmp_path / "out", tmp_path / "rank0.sqlite", recipe="llm_overview")
    assert read_report(out)["report"]["answer"].startswith("Nothing ran on a GPU")


def planted_job(folder, program):
    """Return the rules of each opportunity of a simulated job, by its culprit."""
    folder.mkdir()
    write_profiles(simulate(program), folder)
    rows = quick("llm_overview", folder)["all_findings"].dropna(subset=["opportunity"])
    return [
        {f"{row.recipe} {row.rule}" for row in some.itertuples()}
        for _, some in rows.groupby("opportunity")
    ]


def test_copies_that_block_the_host_are_one_thing_whoever_sees_them(tmp_path):
    groups = planted_job(tmp_path / "job", pageable_copies())
    (blocking,) = (some for some in groups if "idle_gaps idle_sync_memop" in some)
    assert "step_budget path_waits" in blocking
    assert sum("step_budget path_waits" in some for some in groups) == 1


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_a_rank_with_a_late_host_is_one_thing_and_the_first(tmp_path, seed):
    first, *others = planted_job(tmp_path / "job", late_host(seed=seed))
    assert {"step_budget path_straggler", "idle_gaps host_work"} <= first
    assert not any("late" in rule or "straggler" in rule for some in others for rule in some)


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_a_slow_gpu_and_the_late_host_of_another_rank_are_two_things(tmp_path, seed):
    ranks = list(late_host(steps_n=12, seed=seed, rank=2, late_ns=250_000).ranks)
    ranks[1] = replace(ranks[1], gpu_pct=150)
    groups = planted_job(tmp_path / "job", Program(tuple(ranks)))
    (slow,) = (some for some in groups if "llm_hotspots slow_rank" in some)
    (late,) = (some for some in groups if "idle_gaps host_work" in some)
    assert slow is not late


def finding(gain_ns, **given):
    gain = Gain(gain_ns, 1_000, ("idle",), "idle", is_bound=False)
    words = {"title": "a", "details": "b", "tables": ("gaps",), "recommendation": "c"}
    plain = {"rule": "r", "scope": "run", "severity": gain.severity, "gain": gain, **words}
    return Finding(**{**plain, **given})


def test_where_a_gpu_idles_belongs_to_why_and_gains_no_more():
    """The demo idles before decode as long as three causes together: that is one of them each."""
    where = finding(108, title="before decode", culprit="phase:decode", rank=1)
    late = finding(66, title="host", cause="host_no_cuda", rank=2, ranks=(1, 2))
    sync = finding(24, title="sync", cause="host_sync", rank=1)
    slow = finding(90, title="slow", culprit="rank:1", rank=1)
    assert groups_of(where, sync, late, slow) == [["slow"], ["host", "before decode"], ["sync"]]
    elsewhere = replace(where, rank=3)
    assert groups_of(elsewhere, sync, late) == [["before decode"], ["host"], ["sync"]]
    assert groups_of(where, slow) == [["before decode"], ["slow"]]


def test_waits_for_nobody_in_particular_belong_to_the_rank_that_a_finding_names():
    """One wait is no straggler's and a straggler's at once."""
    waiting = {"gain": Gain(50, 1_000, ("communication",), "idle", is_bound=False), "rank": 3}
    nobody = finding(50, title="nobody", culprit="communicator:0-3", **waiting)
    named = finding(50, title="named", culprit="rank:1", **waiting)
    late = finding(40, title="late", culprit="rank:1", rank=1)
    assert groups_of(nobody, named, late) == [["named", "late", "nobody"]]
    assert groups_of(nobody, late) == [["nobody"], ["late"]]
    elsewhere = replace(named, rank=2)
    assert groups_of(nobody, elsewhere) == [["nobody"], ["named"]]


def test_copies_of_any_kind_are_those_of_the_largest_kind():
    path = finding(28, title="path", culprit="copies:link", rank=0)
    upload = finding(22, title="HtoD", culprit="copies:HtoD", rank=1)
    download = finding(11, title="DtoH", culprit="copies:DtoH", rank=1)
    assert groups_of(path, upload, download) == [["path", "HtoD"], ["DtoH"]]
    assert groups_of(path) == [["path"]]
    bound = finding(27, title="bound", culprit="copies:link", rank=0)
    assert groups_of(path, bound, upload) == [["path", "bound"], ["HtoD"]]


class Told:
    """A part that has nothing but findings."""

    def __init__(self, *findings):
        self.report = self
        self.findings = findings


def groups_of(*findings):
    return [
        [entry.title for _, entry in group.sources]
        for group in grouped_findings({f"r{n}": Told(entry) for n, entry in enumerate(findings)})
    ]


def test_a_place_belongs_to_the_largest_cause_though_another_finding_leads_that():
    """The lead of a late host is a bound on a path, which names no cause."""
    where = finding(184, title="in forward", culprit="phase:forward", rank=1)
    path = finding(310, title="path", culprit="host:late", rank=1)
    late = finding(274, title="late", culprit="host:late", cause="host_no_cuda", rank=1)
    queued = finding(39, title="queued", cause="queued", rank=0, ranks=(0, 1))
    assert groups_of(where, queued, path, late) == [["path", "late", "in forward"], ["queued"]]


def test_what_a_rank_loses_decides_and_not_what_the_worst_one_does():
    """On a rank that is none of the worst, the others' median is what a cause takes."""
    where = finding(34, title="where", culprit="phase:forward", rank=0)
    numbers = {"other_ranks_median_ns": 5}
    late = {"culprit": "host:late", "cause": "host_no_cuda", "rank": 2, "ranks": (0, 2)}
    host = finding(314, title="host", numbers=numbers, **late)
    queued = finding(30, title="queued", cause="queued", rank=0)
    assert groups_of(where, queued, host) == [["host"], ["queued", "where"]]


def test_rare_slow_steps_of_a_phase_are_no_idle_time_of_it():
    late = finding(90, title="late", cause="host_no_cuda", rank=0)
    gain = Gain(20, 1_000, ("compute", "idle"), "device", is_bound=False, tail_pct=40.0)
    slow = finding(20, title="slow steps", culprit="phase:decode", rank=0, gain=gain)
    where = finding(50, title="where", culprit="phase:decode", rank=0)
    assert groups_of(late, slow, where) == [["late", "where"], ["slow steps"]]


def test_of_a_culprit_and_a_cause_the_culprit_decides():
    both = finding(30, title="both", culprit="rank:2", cause="host_sync", rank=0)
    wait = finding(90, title="wait", cause="host_sync", rank=0)
    rank = finding(60, title="rank", culprit="rank:2", rank=2)
    assert groups_of(both, wait, rank) == [["wait"], ["rank", "both"]]


LATE = {"culprit": "host:late", "cause": "host_no_cuda", "rank": 2, "ranks": (0, 1, 2)}


def test_a_host_that_is_late_on_one_rank_alone_is_why_the_others_wait():
    host = finding(70, title="host", numbers={"other_ranks_median_ns": 34}, **LATE)
    path = finding(75, title="path", culprit="host:late", rank=2)
    waits = finding(80, title="waits", culprit="rank:2", rank=0)
    assert groups_of(host, path, waits) == [["waits", "path", "host"]]
    other = finding(60, title="other", culprit="rank:1", rank=0)
    assert groups_of(host, other) == [["host"], ["other"]]
    everywhere = replace(host, numbers={"other_ranks_median_ns": 36})
    assert groups_of(everywhere, waits) == [["waits"], ["host"]]
    lone = replace(host, numbers={})
    assert groups_of(lone, waits) == [["waits"], ["host"]]


def test_a_slow_gpu_and_a_late_host_of_one_rank_are_two_faults():
    host = finding(70, title="host", numbers={"other_ranks_median_ns": 3}, **LATE)
    waits = finding(80, title="waits", culprit="rank:2", rank=0)
    computes = Gain(60, 1_000, ("compute",), "device", is_bound=True)
    slow = finding(60, title="slow", culprit="rank:2", rank=2, gain=computes)
    assert groups_of(host, waits, slow) == [["waits", "slow"], ["host"]]


def test_findings_on_one_culprit_are_one_opportunity_led_by_the_largest():
    small = finding(50, title="small", culprit="rank:2")
    large = finding(90, title="large", culprit="rank:2")
    other = finding(70, title="other", culprit="rank:3")
    assert groups_of(small, other, large) == [["large", "small"], ["other"]]


def test_waits_for_a_rank_cost_no_more_than_it_is_late_on_the_path():
    waits = finding(100, title="waits", culprit="rank:7", rank=0)
    late = Gain(87, 1_000, ("compute", "copies", "idle"), "path", is_bound=True)
    path = finding(87, title="path", culprit="rank:7", rank=7, gain=late)
    other = finding(95, title="other", culprit="rank:1", rank=0)
    assert groups_of(waits, path, other) == [["other"], ["path", "waits"]]
    # Longer kernels of the rank are a part of why it is late.
    computes = Gain(60, 1_000, ("compute",), "device", is_bound=True)
    slow = finding(60, title="slow", culprit="rank:7", rank=7, gain=computes)
    assert groups_of(waits, slow, other) == [["waits", "slow"], ["other"]]


def test_a_bound_of_whole_steps_alone_is_none_of_a_longer_span():
    waits = finding(100, title="waits", culprit="rank:7", rank=0)
    late = Gain(87, 1_000, ("compute", "copies", "idle"), "path", is_bound=True)
    path = finding(87, title="path", culprit="rank:7", rank=7, gain=late)
    some = {"whole_steps_n": 5, "whole_steps_ns": 600, "cut_steps_ns": 200}
    assert groups_of(waits, replace(path, numbers=some)) == [["waits", "path"]]
    whole = {"whole_steps_n": 8, "whole_steps_ns": 1_010}
    assert groups_of(waits, replace(path, numbers=whole)) == [["path", "waits"]]


def working_between_steps(late_ns, *, rank=2, steps_n=8):
    """Return a job with as much work before its steps as in them; one rank is late in all of it."""

    def body(make, at, step):
        late = [make.copy("DtoD", late_ns, stream=7)] if at == rank else []
        layers = [[make.kernel(GEMM, 30_000), make.reduce(800)] for _ in range(4)]
        return [*late, *chain(*layers), Sync("stream")]

    before = ranked(4, steps_n, body, 0, stepped=False)
    steps = ranked(4, steps_n, body, 1)
    pairs = zip(before.ranks, steps.ranks, strict=True)
    return Program(
        tuple(
            replace(then, threads=((*first.threads[0], *then.threads[0]),)) for first, then in pairs
        )
    )


def test_a_rank_that_is_late_outside_of_steps_too_has_all_of_its_gain(tmp_path):
    outcome = simulate(working_between_steps(500_000))
    write_profiles(outcome, tmp_path)
    healed_ns = simulate(working_between_steps(1)).wall_ns
    truth_pct = 100 * (outcome.wall_ns - healed_ns) / outcome.wall_ns
    tables = quick("llm_overview", tmp_path, "--step", "re:ProfilerStep")
    gained = tables["opportunities"].set_index("culprit").loc["rank:2"]
    assert gained["gain_pct"] == pytest.approx(truth_pct, rel=0.05)


def test_an_opportunity_is_where_its_first_finding_with_a_window_on_that_gpu_is():
    here = {"culprit": "rank:2", "rank": 0, "device_id": 0}
    lead = finding(90, title="lead", **here)
    elsewhere = finding(80, title="elsewhere", **{**here, "rank": 1}, window_ns=(1, 2))
    merged = finding(70, title="merged", **here, window_ns=(3, 4))
    last = finding(60, title="last", **here, window_ns=(5, 6))

    def window_of(*some):
        (row,) = opportunity_rows([Opportunity(tuple(("r", entry) for entry in some))], None)
        return row["window_start_ns"], row["window_end_ns"]

    assert window_of(lead, elsewhere, merged, last) == (3, 4)
    assert window_of(last, merged) == (5, 6)
    assert window_of(lead, elsewhere) == (None, None)


def test_findings_on_one_cause_are_one_only_on_one_gpu_and_one_stretch():
    here = {"cause": "host_sync", "rank": 0, "device_id": 0, "window_ns": (0, 100)}
    first = finding(90, title="first", **here)
    same = finding(80, title="same", **{**here, "window_ns": (40, 100)})
    later = finding(70, title="later", **{**here, "window_ns": (60, 300)})
    elsewhere = finding(60, title="elsewhere", **{**here, "rank": 1})
    nameless = replace(first, title="nameless", cause=None)
    shown = groups_of(first, same, later, elsewhere, nameless)
    assert shown == [["first", "same"], ["nameless"], ["later"], ["elsewhere"]] or shown == [
        ["first", "same", "later"],
        ["nameless"],
        ["elsewhere"],
    ]


@pytest.mark.parametrize(
    ("window", "other", "shared"),
    [((0, 10), (4, 14), True), ((0, 10), (5, 15), False), ((0, 100), (50, 60), True),
     ((0, 10), (10, 20), False)],
)  # fmt: skip
def test_more_than_half_of_the_shorter_window_is_shared(window, other, shared):
    assert _overlap(window, other) is shared
    assert _overlap(other, window) is shared


@pytest.mark.parametrize("seed", range(20))
def test_each_finding_is_in_one_opportunity_whatever_their_order(seed):
    chance = random.Random(seed)
    culprits = [None, "host:late", "rank:0", "rank:1", "phase:decode", "communicator:0-1"]
    culprits += ["copies:link", "copies:HtoD"]
    some = [
        finding(
            gain_ns,
            title=f"f{gain_ns}",
            culprit=chance.choice(culprits),
            cause=chance.choice([None, "host_no_cuda", "queued"]),
            rank=chance.choice([0, 1]),
            ranks=chance.choice([(), (0, 1)]),
            numbers=chance.choice([{}, {"other_ranks_median_ns": gain_ns // 3}]),
        )
        for gain_ns in chance.sample(range(10, 900), 12)
    ]
    groups = groups_of(*some)
    assert sorted(title for group in groups for title in group) == sorted(
        entry.title for entry in some
    )
    for _ in range(5):
        chance.shuffle(some)
        assert groups_of(*some) == groups
    gain_ns = {entry.title: entry.gain.gain_ns for entry in some}
    leads = [gain_ns[group[0]] for group in groups]
    assert leads == sorted(leads, reverse=True)
    where = {
        entry.title for entry in some if (entry.culprit or "").startswith(("phase", "communicator"))
    }
    for first, *others in groups:
        assert gain_ns[first] == max(gain_ns[title] for title in {first, *others} - where | {first})
