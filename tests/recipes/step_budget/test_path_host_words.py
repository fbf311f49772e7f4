"""Whose host it is, and what it does, stand in the titles of waits."""

from __future__ import annotations

import json
import re

import pytest
from judgement.truth import planted
from machine import simulate, write_profiles
from machine.parts import GEMM, Maker, ranked
from machine.program import Instruction, Pop, Push, Sync
from machine.scenarios import two_devices
from quick_run import quick
from title_claims import check_title
from trace_builder import TraceBuilder

from nsys_llm.report.records import records


def tables_of(program, folder):
    write_profiles(simulate(program), folder)
    tables = quick("step_budget", folder)
    known = {**tables, "files": tables["files"].rename_axis("rank").reset_index()}
    for row in records(tables["findings"]):
        if row["rule"] in ("path_host", "path_waits"):
            check_title({**row, "evidence": json.loads(row["evidence"])}, known)
    return tables


def titles(program, folder, rule="path_waits"):
    findings = tables_of(program, folder)["findings"]
    return findings.loc[findings["rule"] == rule, "title"].tolist()


def in_range(make: Maker, name: str, host_ns: float) -> list[Instruction]:
    return [Push(name), make.host(host_ns), Pop(), make.kernel(GEMM, 30_000)]


def in_turn(*host_ns: float):
    """Return a job whose ranks' hosts hold a step up one after the other, for so long each."""

    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        made: list[Instruction] = []
        for late, ns in enumerate(host_ns):
            work = in_range(make, "prepare", ns) if rank == late else [make.kernel(GEMM, 30_000)]
            made += [*work, make.reduce(5_000), Sync("stream")]
        return made

    return ranked(len(host_ns), 6, body, 0)


@pytest.mark.slow
def test_a_wait_names_the_rank_whose_host_is_late_alone(tmp_path):
    program, _, wanted = planted("late_host", 2)
    (title,) = titles(program, tmp_path)
    assert title.startswith(f"Rank {wanted[0].rank}'s host after `cuda")
    assert title.endswith("in `data`")


@pytest.mark.slow
def test_a_wait_of_all_ranks_names_none(tmp_path):
    program, _, _ = planted("sync_in_step", 0)
    assert titles(program, tmp_path)[0].startswith("Host after `cuda")


def test_a_range_with_a_trifle_is_not_what_the_host_does(tmp_path):
    (title,) = titles(two_devices(), tmp_path)
    assert title.endswith(" a step on the critical path")


def test_what_another_ranks_thread_did_there_is_not_said_of_this_one(tmp_path):
    # Rank 0 idles most; the steps of the job end on rank 1, whose path is in `data`.
    for rank, (name, wait, end) in enumerate((("prepare", 500, 800), ("data", 300, 1_000))):
        trace = TraceBuilder().environment(RANK=str(rank)).thread_switch(start_ns=0, goes_on=True)
        for at in range(0, 9_000, 1_000):
            trace.nvtx("step", 1_000 * at, 1_000 * (at + 999))
            trace.nvtx(name, 1_000 * at, 1_000 * (at + wait))
            if rank == 0:
                trace.nvtx("data", 1_000 * (at + wait), 1_000 * (at + wait + 4))
            launch = 1_000 * (at + wait + 5), 1_000 * (at + wait + 9)
            ends = 1_000 * (at + end)
            trace.kernel("k", start_ns=launch[1] + 1, end_ns=ends, launch=launch)
            trace.api("cudaDeviceSynchronize_v3020", start_ns=launch[1] + 5, end_ns=ends + 1)
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    tables = quick("step_budget", tmp_path)
    states = tables["host_states"]
    assert set(states.loc[states["range"] == "data", "rank"]) == {1}
    (title,) = tables["findings"].loc[tables["findings"]["rule"] == "path_host", "title"]
    assert title == "Host: 300 us a step in `data`, 100.0 % running"


def test_samples_alone_do_not_say_what_a_thread_did_on_the_path(tmp_path):
    for name in ("samples", "switches"):
        trace = TraceBuilder()
        for at in range(9):
            launch = 1_000 * at + 300, 1_000 * at + 310
            trace.nvtx("step", 1_000 * at, 1_000 * at + 999)
            trace.kernel("k", start_ns=1_000 * at + 400, duration_ns=500, launch=launch)
            trace.cpu_sample([("f", "/usr/bin/python3")], start_ns=1_000 * at + 100)
        if name == "switches":
            trace.thread_switch(start_ns=0, goes_on=True)
        path = tmp_path / f"{name}.sqlite"
        trace.write_sqlite(path)
        states = quick("step_budget", path)["host_states"]
        known = states["state"].isin(["cuda_call", "unknown"]).all()
        assert bool(known) == (name == "samples")


def number_of(title):
    return float(title.split(": ")[1].split(" us a step")[0])


def test_a_ranks_host_has_its_own_part_of_the_path_alone(tmp_path):
    (title,) = titles(in_turn(90_000, 20_000), tmp_path, "path_host")
    assert title.startswith("Rank 0's host: ")
    assert title.endswith(" us a step in `prepare`")
    assert 85 < number_of(title) < 100  # and not 110


def test_hosts_that_share_the_path_are_all_named_the_largest_first(tmp_path):
    (title,) = titles(in_turn(60_000, 65_000), tmp_path, "path_host")
    assert title.startswith("Hosts of ranks 1 and 0: ")
    assert title.endswith(" us of it in `prepare`")
    whole, part = number_of(title), float(title.split(", ")[1].split(" us of it")[0])
    assert 120 < part < 130 < whole < 150


@pytest.mark.parametrize("data_ns", [13_000, 60_000])
def test_each_wait_has_the_place_behind_it_and_its_own_number(tmp_path, data_ns):
    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        data, item = in_range(make, "data", data_ns), in_range(make, "item", 42_000)
        return [Sync("device"), *data, Sync("stream"), *item]

    tables = tables_of(ranked(1, 6, body, 0), tmp_path)
    found = tables["findings"].set_index("name")["title"]
    states, n = tables["host_states"], tables["host_states"]["steps_n"].iloc[0]
    for wait, name in (("cudaDeviceSynchronize", "data"), ("cudaStreamSynchronize", "item")):
        behind = states[states["behind"] == wait]
        row = tables["ceilings"].set_index(["change", "name"]).loc[("wait", wait)]
        assert row["path_ns"] * n == pytest.approx(behind["idle_ns"].sum())
        assert not row["is_bound"]
        assert set(behind["range"].dropna()) <= {name, "ProfilerStep##"}
        place_ns = behind.loc[behind["range"] == name, "idle_ns"].sum() / n
        is_named = place_ns >= 0.5 * row["path_ns"]
        shown = f": {row['path_ns'] / 1000:.1f} us a step"
        words = f"{shown}, {place_ns / 1000:.1f} us of it in `{name}`"
        assert (
            words in found[wait]
            if is_named
            else found[wait].endswith(f"{shown} on the critical path")
        )


def test_two_places_that_share_what_follows_a_wait_are_both_named(tmp_path):
    def body(make: Maker, rank: int, step: int) -> list[Instruction]:
        return [Sync("stream"), *in_range(make, "update", 60_000), *in_range(make, "plan", 40_000)]

    tables = tables_of(ranked(1, 6, body, 0), tmp_path)
    title = tables["findings"].set_index("rule")["title"]["path_waits"]
    assert re.search(
        r": [\d.]+ us a step, [\d.]+ us of it in `update`, [\d.]+ us in `plan`$", title
    )


@pytest.mark.parametrize(("data_us", "said"), [(10, "outside all ranges"), (320, "in `data`")])
def test_a_range_that_holds_little_is_not_said_beside_all_of_the_gain(tmp_path, data_us, said):
    trace = TraceBuilder()
    for at in range(0, 9_000, 1_000):
        trace.nvtx("step", 1_000 * at, 1_000 * (at + 500))
        trace.nvtx("data", 1_000 * (at + 550), 1_000 * (at + 550 + data_us))
        launch = 1_000 * (at + 5), 1_000 * (at + 9)
        trace.kernel("k", start_ns=launch[1] + 1, end_ns=1_000 * (at + 400), launch=launch)
        trace.api("cudaDeviceSynchronize_v3020", start_ns=launch[1] + 5, end_ns=1_000 * (at + 401))
    findings = quick("step_budget", trace.write_sqlite(tmp_path / "a.sqlite"))["findings"]
    shown = findings[findings["rule"].isin(["path_host", "path_waits"])]
    assert len(shown) == 2
    assert shown["title"].str.contains(said).all()
    assert shown["title"].str.contains("in `data`").eq(data_us == 320).all()
