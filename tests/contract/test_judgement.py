"""The judgement of all recipes at once: gains fit, causes are the engine's, culprits are guilty."""

from __future__ import annotations

import json
import shutil

import pytest
from effort import nightly_but, seeds
from finding_numbers import unexplained_numbers
from gain_checks import check_findings, check_gain, not_plain
from machine import random_program, simulate, write_profiles
from machine.scenarios import slow_gpu
from quick_run import quick, quick_part, quick_run
from results import run

from nsys_llm.report.findings import finding_record
from nsys_llm.report.run_findings import all_findings
from nsys_llm.report.run_tables import run_tables
from nsys_llm.testing import demo
from nsys_llm.testing.demo import write_demo

H100 = ["h100_mfu_ranks/before", "h100_mfu_ranks/after", "h100_mfu/before.sqlite"]
#: All traces of it, and pairs to compare: a change, and back.
EVERY_H100 = [*H100, "h100_mfu/after.sqlite"]
H100_PAIRS = [(H100[0], H100[1]), (H100[1], H100[0])]
A100 = ["vector_add_profile_serial", "vector_add_profile_streamed", "vector_add_profile_v2"]
GPU = ["rank", "device_id"]
OF_IDLE = ("host", "wait", "queued", "dependency", "module_load", "allocation")


def judged(*paths):
    """Return the opportunities of an overview, after all findings of all recipes were checked."""
    done = quick_part("llm_overview", *paths)
    tables = dict(done.tables)
    for recipe, part in done.parts.items():
        check_findings(part.report.findings, part.tables)
        _check_wall(part.tables["wall"], tables["wall"])
        tables |= {f"{recipe}/{name}": table for name, table in part.tables.items()}
    check_findings(done.report.findings, tables)
    _check_idle(tables["opportunities"])
    return tables["opportunities"]


def _check_wall(wall, whole):
    """Fail unless a recipe splits each GPU as the overview does, which adds up to its span."""
    sums = [table.groupby([*GPU, "wall_class"])["time_ns"].sum() for table in (wall, whole)]
    nonzero = [sums_ns[sums_ns > 0] for sums_ns in sums]
    assert nonzero[0].equals(nonzero[1])
    spans = wall.groupby(GPU)["span_ns"].agg(["min", "max"])
    assert (wall.groupby(GPU)["time_ns"].sum() == spans["min"]).all()
    assert (spans["min"] == spans["max"]).all()
    keys = [*GPU, "wall_class", "detail"]
    both = wall[wall["detail"].notna()].merge(whole, on=keys, suffixes=("", "_whole"))
    assert (both["time_ns"] == both["time_ns_whole"]).all()


def _check_idle(opportunities):
    """Fail where idle time of a GPU with a cause stands a second time as a place."""
    places = (opportunities["cause"] == "place") & (opportunities["rule"] == "idle_before_phase")
    ranks = opportunities.loc[places, "rank"]
    known = opportunities.loc[opportunities["cause"].isin(OF_IDLE), "cause_rank"]
    assert ranks.empty or not (known.isna() | known.isin(ranks)).any()


@pytest.mark.nightly
@pytest.mark.parametrize("side", ["baseline", "after"])
def test_the_demo(tmp_path, side):
    rows = judged(*getattr(write_demo(tmp_path, scale=0.5), side))
    # Without its slow rank the demo takes 13.05 % less.
    first = rows.iloc[0]
    assert (first["cause"], first["cause_rank"]) == ("rank", 2)
    assert 13.05 <= first["gain_pct"] <= 16


@pytest.mark.nightly("h100_mfu_ranks/before")
@pytest.mark.traces
@pytest.mark.parametrize("name", nightly_but(EVERY_H100, H100[:1]))
def test_real_traces(traces, name):
    judged(traces / name)


def check_numbers(baseline, compared):
    """Fail unless every number of a comparison's findings is a field, as report.json has it."""
    done = quick_run("trace_diff", f"--baseline={baseline}", compared)
    tables = run_tables(done)
    findings = all_findings(done, tables)
    assert findings
    wall = tables["wall"]
    for finding in findings:
        assert list(not_plain(finding)) == []
        record = json.loads(json.dumps(finding_record(finding)))
        assert unexplained_numbers(record) == [], (finding.rule, finding.title, finding.details)
        if record["gain_ns"] is not None and record["severity"] is not None:
            check_gain(record, wall[wall["run"] == "input"])


@pytest.mark.traces
@pytest.mark.parametrize(("baseline", "compared"), nightly_but(H100_PAIRS, H100_PAIRS[:1]))
def test_numbers_of_a_comparison_of_real_traces(traces, baseline, compared):
    check_numbers(traces / baseline, traces / compared)


@pytest.mark.nightly
@pytest.mark.nsys
@pytest.mark.traces
@pytest.mark.parametrize("stem", nightly_but(A100, A100[:1]))
def test_real_reports(nsys, traces, tmp_path, stem):
    report = tmp_path / f"{stem}.nsys-rep"
    shutil.copyfile(traces / "a100_vector_add" / report.name, report)
    words = ["--type", "sqlite", "--lazy", "false", "-o", "export.sqlite", report]
    assert run([nsys, "export", *words], tmp_path).returncode == 0
    judged(tmp_path / "export.sqlite")


@pytest.mark.nightly("4")
@pytest.mark.parametrize("seed", seeds(12, 2))
def test_random_jobs(tmp_path, seed):
    write_profiles(simulate(random_program(seed)), tmp_path)
    judged(tmp_path)


@pytest.mark.parametrize("every", nightly_but([[(3,)], [tuple(range(12))]], [[(3,)]]))
def test_a_rank_that_is_3_percent_slower_is_named_in_9_of_10_and_no_other(tmp_path, every):
    named = []
    for seed in every:
        folder = tmp_path / f"{seed}"
        write_profiles(simulate(slow_gpu(4, 20, seed, rank=seed % 4, gpu_pct=103)), folder)
        tables = [quick(name, folder)["findings"] for name in ("step_budget", "tail_stats")]
        blamed = {
            rank
            for findings in tables
            for rank in findings.loc[findings["cause"] == "rank", "cause_rank"]
        }
        assert blamed <= {seed % 4}
        named += blamed
    assert len(named) >= 0.9 * len(every)


@pytest.mark.nightly
def test_the_demo_without_its_slow_rank_names_none(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "SLOWNESS", (1.0, 1.0, 1.0, 1.0))
    rows = judged(*write_demo(tmp_path, scale=0.5).baseline)
    assert not (rows["cause"] == "rank").any()
