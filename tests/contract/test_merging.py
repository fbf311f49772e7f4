"""Results of ranks merge in any order and grouping, also with nothing: every table is the same."""

from __future__ import annotations

import random

import pandas as pd
import pytest
import quick_run
from effort import nightly_but

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.testing.demo import write_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Two runs of four ranks with kernels, calls, ranges and collectives."""
    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder, scale=0.05)
    return folder


def by_a_tree(seed, parts, recipe):
    """Merge two or three at a time, in any order, now and then with nothing."""
    chance, waiting = random.Random(seed), list(parts)
    while len(waiting) > 1:
        chance.shuffle(waiting)
        n = chance.randint(2, 3)
        nothing = [map_profiles([], recipe=recipe, options={})] * chance.randint(0, 1)
        waiting = [*waiting[n:], merge_results([*waiting[:n], *nothing])]
    return waiting[0]


@pytest.mark.parametrize("recipe", nightly_but(recipe_names(), ["idle_gaps"]))
def test_every_table_is_the_same_whatever_the_tree_of_merging(demo, monkeypatch, recipe):
    words = ["--baseline", str(demo / "baseline")] if load_manifest(recipe).sided else []
    expected = quick_run.quick(recipe, demo / "after", *words)
    parts, seeds = {}, iter(range(3))

    def mapped(inputs, *, recipe, options, keep):
        for one in inputs:
            if one not in parts:
                parts[one] = map_profiles([one], recipe=recipe, options=options)
        return by_a_tree(next(seeds), parts.values(), recipe)

    monkeypatch.setattr(quick_run, "map_profiles", mapped)
    for _ in range(3):
        tables = quick_run.quick(recipe, demo / "after", *words)
        assert tables.keys() == expected.keys()
        for name, table in expected.items():
            pd.testing.assert_frame_equal(tables[name], table, check_exact=True)
    assert sum(len(table) > 0 for table in expected.values()) > len(expected) / 3
