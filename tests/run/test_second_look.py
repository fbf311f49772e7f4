"""What lanes are drawn from: the first read, or a second one of the same profile, or nothing."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from effort import seeds
from machine import random_program, simulate, write_profiles
from quick_run import quick_run

from nsys_llm.analyses.timeline.step_lanes import LaneInputs
from nsys_llm.recipes.llm_overview.findings.answer import caveats
from nsys_llm.report.perfetto import TRACE_NAME
from nsys_llm.report.run_tables import run_tables
from nsys_llm.run import second_look
from nsys_llm.run.executors import Inline
from nsys_llm.run.perfetto import write_perfetto
from nsys_llm.run.second_look import FirstRead
from nsys_llm.testing.demo import write_demo

pytestmark = pytest.mark.slow

STATES = ("work", "wait")


class Console:
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def warn(self, text):
        self.said.append(text)

    note = warn


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder, scale=0.02)
    return sorted((folder / "after").iterdir())[:2]


def first_read(*profiles, words=(), room_n=10**9):
    """Read profiles and return the run, and what is kept of it where so many operations may be."""
    first = FirstRead(len(profiles))
    first._room_n = room_n
    return quick_run("llm_overview", *profiles, *words, keep=first.keep), first


def timeline_of(run, first=None):
    console = Console()
    look = partial(second_look.look_again, executor=Inline(), console=console)
    rows = look(run, run_tables(run), first)["timeline"]
    assert console.said == []
    return rows


@pytest.mark.nightly("4", "16", "12")
@pytest.mark.parametrize("seed", seeds(20, 4))
def test_what_is_kept_of_the_first_read_gives_the_lanes_of_a_second(tmp_path, seed):
    run, first = first_read(*write_profiles(simulate(random_program(seed)), tmp_path))
    assert set(first._kept) == {rank.key for rank in run.ranks}
    pd.testing.assert_frame_equal(timeline_of(run, first), timeline_of(run))
    assert first._kept == {}


@pytest.mark.nightly("12")
@pytest.mark.parametrize("seed", seeds(20, 2))
def test_lanes_of_the_operations_near_a_window_are_those_of_all(tmp_path, monkeypatch, seed):
    run, _ = first_read(*write_profiles(simulate(random_program(seed)), tmp_path))
    near = timeline_of(run)
    monkeypatch.setattr(LaneInputs, "near", lambda rows, window: whole(rows))
    pd.testing.assert_frame_equal(timeline_of(run), near)


def whole(rows):
    trace = rows.trace
    return replace(trace, tables={**trace.tables, **trace.unfiltered})


def test_what_is_kept_is_drawn_though_the_profile_has_changed(demo, tmp_path):
    paths = [shutil.copy(path, tmp_path) for path in demo]
    run, first = first_read(*map(Path, paths))
    Path(paths[1]).write_bytes(b"")
    assert timeline_of(run, first)["part"].isin(STATES).sum() > 100
    with pytest.raises(AssertionError):
        timeline_of(run, first)  # nothing is kept any more


@pytest.mark.nightly("words0")
@pytest.mark.parametrize("words", [["--steps", "1:2"], ["--base"]])
def test_ranks_that_are_not_seen_as_lanes_show_them_are_read_again(demo, words):
    run, first = first_read(*demo, words=words)
    assert first._kept == {}
    assert timeline_of(run, first)["part"].isin(STATES).any()


def test_of_many_ranks_only_some_are_kept_but_an_only_one_is(demo):
    few = ["--only", "idle_gaps"]
    assert first_read(*demo, words=few, room_n=0)[1]._kept == {}
    run, first = first_read(demo[0], words=few, room_n=0)
    assert len(first._kept) == 1
    ops_n = sum(row.total_n for row in run.profiles[0].ranks[0].coverage)
    assert len(first_read(*demo, words=few, room_n=ops_n + 1)[1]._kept) == 1


@pytest.mark.nightly("False", "True")
@pytest.mark.parametrize("perfetto", [False, True])
def test_a_profile_that_is_replaced_between_the_reads_is_in_no_timeline(tmp_path, perfetto):
    write_demo(tmp_path, scale=0.02)
    ranks, other = tmp_path / "after", tmp_path / "baseline" / "rank1.sqlite"
    run, console = quick_run("llm_overview", ranks), Console()
    tables = run_tables(run)
    os.replace(other, ranks / "rank1.sqlite")
    changed = "rank1.sqlite: changed since it was first read; run again."
    if perfetto:
        write_perfetto(tmp_path, run, tables, [], console)
        trace = json.loads(gzip.decompress((tmp_path / TRACE_NAME).read_bytes()))
        named = [event for event in trace["traceEvents"] if event["name"] == "process_name"]
        shown = {event["args"]["name"].split(" (")[0] for event in named}
        assert (f"{TRACE_NAME}: {changed}" in console.said, "rank 1" in shown) == (True, False)
        return
    rows = second_look.look_again(run, tables, executor=Inline(), console=console)["timeline"]
    assert console.said == [f"timeline: {changed}"]
    assert sorted(rows[rows["part"].isin(STATES)]["rank"].unique()) == [0, 2, 3]
    assert rows[rows["part"] == "not read"]["rank"].unique().tolist() == [1]
    (caveat,) = caveats({"timeline": rows})
    assert caveat.startswith("The timeline does not show what ran on `rank1`: the profile could")
