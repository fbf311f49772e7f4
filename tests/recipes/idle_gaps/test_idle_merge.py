"""Merging ranks of idle_gaps: in any order and grouping, and whatever the files are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import nightly_but
from results import LABELS, assert_same, differences, read_results, tables_of

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import resolved_options
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.recipes.idle_gaps.analysis import ANALYSIS
from nsys_llm.run.cli import main
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.testing.demo import write_demo
from nsys_llm.trace.identity import RankEntry, number_ranks

RECIPE = "idle_gaps"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return write_demo(tmp_path_factory.mktemp("demo"), scale=0.5).baseline


@pytest.fixture(scope="module")
def results(ranks):
    options = resolved_options(load_manifest(RECIPE), {"input": [str(path) for path in ranks]})
    return options, [
        map_profiles([ProfileInput(str(path), path.stem)], recipe=RECIPE, options=options)
        for path in ranks
    ]


def tables(results, order):
    options, parts = results
    merged = merge_results([parts[at] for at in order], recipe=RECIPE)
    entries = [
        RankEntry(rank.key, report.label, report.facts, True)
        for report in merged.profiles
        for rank in report.ranks
    ]
    return ANALYSIS.tabulate(merged.partial, number_ranks(entries), options)


def test_the_order_of_merging_changes_nothing(results):
    first, other = tables(results, [0, 1, 2, 3]), tables(results, [3, 1, 0, 2])
    assert first.keys() == other.keys()
    for name, frame in first.items():
        assert frame.equals(other[name]), name


def test_merging_is_associative_and_has_an_identity(results):
    _, parts = results
    first, two, three = (part.partial for part in parts[:3])
    merge = ANALYSIS.merge
    left = merge([merge([first, two]), ANALYSIS.partial(), three])
    right = merge([first, merge([three, two])])
    assert left.ranks.keys() == right.ranks.keys()
    assert left.pattern_lengths.names == right.pattern_lengths.names
    for name in ("group", "value", "count"):
        left_counts = getattr(left.pattern_lengths.counts, name)
        assert (left_counts == getattr(right.pattern_lengths.counts, name)).all()


def test_common_idle_time_does_not_follow_file_names(ranks, tmp_path):
    before = tables_of(tmp_path / "before", *ranks, recipe=RECIPE)["common_idle"]
    # Numbered by their environment, whatever the files are called.
    renamed = []
    for number, path in enumerate(reversed(ranks)):
        renamed.append(tmp_path / f"x{number}.sqlite")
        renamed[-1].write_bytes(Path(path).read_bytes())
    after = tables_of(tmp_path / "after", *renamed, recipe=RECIPE)["common_idle"]
    shown = [
        "intervals_n",
        "total_ns",
        "longest_ns",
        "window_rank",
        "window_start_ns",
    ]
    assert before[shown].equals(after[shown])


@pytest.mark.parametrize("mode", nightly_but(["concurrent", "dask-futures"], ["concurrent"]))
def test_every_mode_gives_the_same_bits(ranks, tmp_path, mode):
    words = ["--quiet", "--input", *map(str, ranks)]
    for name, how in (("one", "none"), ("other", mode)):
        assert main([RECIPE, *words, "--mode", how, "--output", str(tmp_path / name)]) == 0
    assert_same(tmp_path / "one", tmp_path / "other", recipe=RECIPE)
    assert not differences(read_results(tmp_path / "one"), read_results(tmp_path / "other"), LABELS)
