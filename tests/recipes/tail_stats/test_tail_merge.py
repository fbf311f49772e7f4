"""Merging ranks of tail_stats: whatever the tree, every table is the same."""

from __future__ import annotations

import random

import pytest

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import resolved_options
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.recipes.tail_stats.analysis import ANALYSIS
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.testing.demo import write_demo
from nsys_llm.trace.identity import RankEntry, number_ranks
from nsys_llm.trace.outcomes import MapResult

RECIPE = "tail_stats"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The options, and the result of each of four ranks with kernels, calls and collectives."""
    paths = write_demo(tmp_path_factory.mktemp("demo"), scale=0.5).baseline
    options = resolved_options(load_manifest(RECIPE), {"input": [str(path) for path in paths]})
    return options, [
        map_profiles([ProfileInput(str(path), path.stem)], recipe=RECIPE, options=options)
        for path in paths
    ]


def tables(options, merged):
    entries = [
        RankEntry(rank.key, report.label, report.facts, True)
        for report in merged.profiles
        for rank in report.ranks
    ]
    return ANALYSIS.tabulate(merged.partial, number_ranks(entries), options)


def merged_by_a_tree(parts, seed):
    """Merge two or three at a time, in any order, now and then with nothing."""
    rng, waiting = random.Random(seed), list(parts)
    while len(waiting) > 1:
        rng.shuffle(waiting)
        n = rng.randint(2, 3)
        taken = [*waiting[:n], *[MapResult((), ANALYSIS.partial())] * rng.randint(0, 1)]
        waiting = [*waiting[n:], merge_results(taken, recipe=RECIPE)]
    return waiting[0]


@pytest.mark.parametrize("seed", range(6))
def test_every_table_is_the_same_whatever_the_tree_of_merging(results, seed):
    options, parts = results
    expected = tables(options, merge_results(parts, recipe=RECIPE))
    frames = tables(options, merged_by_a_tree(parts, seed))
    assert frames.keys() == expected.keys()
    for name, frame in expected.items():
        assert frame.equals(frames[name]), name
    filled = {name for name, frame in expected.items() if len(frame)}
    assert filled >= {"tails", "outliers", "collectives", "stragglers"}
