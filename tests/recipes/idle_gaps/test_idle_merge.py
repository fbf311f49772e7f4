"""Merging ranks of idle_gaps: in any order and grouping, and whatever the files are called."""

from __future__ import annotations

import pytest

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import resolved_options
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.recipes.idle_gaps.analysis import ANALYSIS
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.testing.demo import write_demo
from nsys_llm.trace.identity import RankEntry, number_ranks

RECIPE = "idle_gaps"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return write_demo(tmp_path_factory.mktemp("demo"), scale=0.1).baseline


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
