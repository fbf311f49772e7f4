"""What of the first read lanes are made of: whole ranks whatever is filtered, as many as fit."""

from __future__ import annotations

import random
from copy import copy
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from effort import seeds
from machine import random_program, simulate, write_profiles
from quick_run import quick_run

from nsys_llm.facts.timeline import step_lanes
from nsys_llm.facts.timeline.step_lanes import KeptRanks, LaneInputs
from nsys_llm.report.building import finished
from nsys_llm.testing.demo import write_demo
from nsys_llm.trace.identity import RankKey

FILTERS = (
    ["--steps", "1:2"],
    ["--skip-warmup", "--base"],
    ["--filter-nvtx", "decode", "--mangled"],
    ["--phase", "decode"],
    ["--filter-time", "1000000/30000000"],
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder, scale=0.02)
    return sorted((folder / "after").iterdir())[:2]


@pytest.fixture(scope="module")
def read(demo):
    return kept_of(demo)


@pytest.fixture
def kept(read):
    """The ranks of all of the demo, for one test."""
    mine = copy(read[1])
    mine._kept = dict(mine._kept)
    return mine


def kept_of(paths, *words):
    """Read profiles; return the run and the ranks that are kept of it."""
    kept = KeptRanks(here=True)
    return quick_run("llm_overview", *paths, *words, kept=kept), kept


def timeline_of(run, kept):
    return finished(run, kept).tables["timeline"]


@pytest.mark.slow
@pytest.mark.nightly("words0", "words1", "words2", "words4")
@pytest.mark.parametrize("words", FILTERS)
def test_what_filters_leave_out_is_drawn(demo, kept, words):
    run, its = kept_of(demo, *words)
    rows = timeline_of(run, its)
    pd.testing.assert_frame_equal(rows, timeline_of(run, kept))
    assert len(rows) > 100 or "--filter-time" in words


@pytest.mark.slow
@pytest.mark.nightly("12")
@pytest.mark.parametrize("seed", seeds(20, 2))
def test_lanes_of_the_operations_near_a_window_are_those_of_all(tmp_path, monkeypatch, seed):
    paths = write_profiles(simulate(random_program(seed)), tmp_path)
    near = timeline_of(*kept_of(paths))
    monkeypatch.setattr(LaneInputs, "near", lambda rows, window: whole(rows))
    pd.testing.assert_frame_equal(timeline_of(*kept_of(paths)), near)


def whole(rows):
    trace = rows.trace
    return replace(trace, tables={**trace.tables, **trace.unfiltered})


def kept_ranks(monkeypatch, sizes, order=None):
    """Keep ranks of so many operations, by profile and process; return which are kept."""
    monkeypatch.setattr(LaneInputs, "of", classmethod(lambda cls, view: view))
    kept = KeptRanks(here=True)
    kept.expect(list(dict.fromkeys(path for path, _ in sizes)))
    for path, process in order or sizes:
        trace = SimpleNamespace(unfiltered={"kernels": range(sizes[path, process])})
        kept.keep(SimpleNamespace(key=RankKey(path, process), trace=trace))
    return {(key.path, key.global_pid) for key in kept._kept}


@pytest.mark.parametrize("seed", range(5))
def test_whether_a_rank_is_kept_depends_on_no_order_of_profiles(monkeypatch, seed):
    monkeypatch.setattr(step_lanes, "MOST_KEPT_OPS", 400)
    rng = random.Random(seed)
    sizes = {(f"{path}", n): rng.randrange(80) for path in range(4) for n in range(3)}
    left, expected = dict.fromkeys("0123", 100), set()
    for (path, n), ops_n in sizes.items():
        if ops_n <= left[path]:
            left[path] -= ops_n
            expected.add((path, n))
    # Threads read profiles in any order, those of one in theirs.
    order = sorted(sizes, key=lambda key: (hash((seed, key[0])), key[1]))
    assert kept_ranks(monkeypatch, sizes, order) == expected
    assert expected < set(sizes)


def test_the_first_of_many_profiles_share_the_room_and_an_only_rank_needs_none(monkeypatch):
    monkeypatch.setattr(step_lanes, "MOST_KEPT_OPS", 160)
    many = {(f"{number:02}", 0): 10 for number in range(40)}
    assert kept_ranks(monkeypatch, many) == {(f"{number:02}", 0) for number in range(16)}
    assert kept_ranks(monkeypatch, {("a", 0): 1_000, ("a", 1): 1}) == {("a", 0)}
    assert kept_ranks(monkeypatch, {("a", 0): 1_000, ("b", 0): 80}) == {("b", 0)}


@pytest.mark.slow
@pytest.mark.nightly("False")
@pytest.mark.parametrize("here", [True, False])
def test_a_rank_that_is_not_kept_says_why_and_what_draws_it(read, kept, here):
    run, _ = read
    kept.here = here
    del kept._kept[run.ranks[1].key]
    part = finished(run, kept)
    rows = part.tables["timeline"]
    (lost,) = rows[rows["part"] == "not drawn"]["name"].unique()
    assert rows[rows["part"] == "work"]["rank"].unique().tolist() == [0]
    why, draws = {
        True: ("there is room for so many operations only", "`--ranks 1`"),
        False: ("workers of a Dask cluster read them", "`--mode concurrent --ranks 1`"),
    }[here]
    assert lost == ("too many operations" if here else "read by a worker of Dask")
    (caveat,) = run.analysis.caveats(part.tables)
    assert caveat.startswith(f"The timeline does not show what ran on `rank1`: {why}. {draws} ")


@pytest.mark.slow
def test_a_second_reading_of_profiles_replaces_what_was_kept(demo, kept):
    assert kept._kept
    kept.expect([str(path) for path in demo])
    assert not kept._kept
