"""Ranks on several machines that nothing ties together: nothing over ranks is certain."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from judgement import job_plants
from machine import simulate, write_profiles
from machine.program import Program
from quick_run import quick

from nsys_llm.recipes.step_budget.findings.on_path import findings


def tables_of(folder, recipe, hosts, *options):
    """Run a recipe over two ranks that never meet, whose wall clocks are 0.4 ms apart."""
    program, _ = job_plants.apart(Random(3), True)
    pairs = zip(program.ranks, hosts, strict=False)
    ranks = [replace(rank, host=host, clock_error_ns=0) for rank, host in pairs]
    ranks[1] = replace(ranks[1], clock_error_ns=0 if len(set(hosts)) == 1 else 400_000)
    write_profiles(simulate(Program(tuple(ranks))), folder)
    return quick(recipe, folder, *options)


def test_of_machines_apart_steps_are_joined_by_position_and_nothing_is_certain(tmp_path):
    tables = tables_of(tmp_path, "step_budget", ("one", "two"))
    steps = tables["job_steps"]
    assert (steps["ranks_n"] == 2).all()
    assert (steps["certain_ns"] == 0).all()
    assert not tables["path"]["certain"].any()
    assert tables["ceilings"].empty
    assert tables["what_if"].empty
    assert tables["rank_edges"]["replay_reason"].str.contains("not aligned").all()
    assert [finding.rule for finding in findings(tables)].count("clocks_apart") == 1


def test_a_change_that_is_not_replayed_has_the_reason_in_its_row(tmp_path):
    asked = ("--what-if", "rank:rank1", "--what-if", "rank:rank7")
    apart = tables_of(tmp_path / "apart", "step_budget", ("one", "two"), *asked)["what_if"]
    assert list(apart["change"]) == ["rank:rank1", "rank:rank7"]
    assert apart["gain_ns"].isna().all()
    assert apart["reason"].str.contains("not aligned").all()
    tied = tables_of(tmp_path / "tied", "step_budget", ("one", "one"), *asked)["what_if"]
    tied = tied.set_index("change")
    assert tied["reason"].notna().to_dict() == {name: name == "rank:rank7" for name in tied.index}
    assert tied["gain_ns"].isna().equals(tied["reason"].notna())


@pytest.mark.parametrize(
    ("hosts", "options"),
    [(("one", "one"), ()), (("one", "two"), ("--disable-alignment",))],
    ids=["one host", "taken as aligned"],
)
def test_one_hosts_clock_ties_ranks_together(tmp_path, hosts, options):
    tables = tables_of(tmp_path, "step_budget", hosts, *options)
    assert tables["job_steps"]["certain_ns"].sum() > 0
    assert not tables["ceilings"].empty
    assert "clocks_apart" not in {finding.rule for finding in findings(tables)}
