"""Whose host it is, and what it does, stand in the titles of waits."""

from __future__ import annotations

from judgement.truth import planted
from machine import simulate, write_profiles
from machine.scenarios import two_devices
from quick_run import quick


def titles(program, folder):
    write_profiles(simulate(program), folder)
    findings = quick("step_budget", folder)["findings"]
    return findings.loc[findings["rule"] == "path_waits", "title"].tolist()


def test_a_wait_names_the_rank_whose_host_is_late_alone(tmp_path):
    program, _, wanted = planted("late_host", 2)
    (title,) = titles(program, tmp_path)
    assert title.startswith(f"Rank {wanted[0].rank}'s host after `cuda")
    assert title.endswith("in `data`")


def test_a_wait_of_all_ranks_names_none(tmp_path):
    program, _, _ = planted("sync_in_step", 0)
    assert titles(program, tmp_path)[0].startswith("Host after `cuda")


def test_a_range_with_a_trifle_is_not_what_the_host_does(tmp_path):
    (title,) = titles(two_devices(), tmp_path)
    assert title.endswith("in `cudaLaunchKernel`")
