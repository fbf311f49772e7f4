"""What workers compute: each kind is in the registry, needed by a recipe, and merges exactly."""

from __future__ import annotations

import pickle
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from machine import random_program, simulate, write_profiles

from nsys_llm.facts.rank_view import RankView
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.manifest.options import resolved_options
from nsys_llm.numeric.stacking import merged
from nsys_llm.profile.inputs import open_profile
from nsys_llm.profile.reader import read_trace
from nsys_llm.reduced.job_facts import KINDS, JobFacts, facts_of
from nsys_llm.report.analysis import load_analysis
from nsys_llm.run.worker import needed_facts
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.selection import gpu_processes, select_rank


def plain(value):
    """Return facts as plain values, so that `==` compares arrays too."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return [(repr(key), plain(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return [(name, plain(getattr(value, name))) for name in value.__dataclass_fields__]
    return repr(value)


@cache
def facts_of_ranks(recipe: str) -> tuple[JobFacts, ...]:
    """Return the facts that a recipe needs of the ranks of two random jobs."""
    manifest = load_manifest(recipe)
    options = resolved_options(manifest, {"input": ["x", "y"]})
    needs = needed_facts(manifest, options)
    ranks = []
    with TemporaryDirectory() as folder:
        for seed in (1, 2):
            for path in write_profiles(simulate(random_program(seed)), Path(folder, str(seed))):
                with open_profile(str(path), ()) as report:
                    trace = read_trace(report, manifest.reads, options)
                for pid in gpu_processes(trace):
                    rows, _, _ = select_rank(trace, pid, options)
                    view = RankView(rows, RankKey(str(path), pid), options)
                    ranks.append(facts_of(view, needs))
    return tuple(ranks)


def test_each_kind_has_what_computes_it_and_a_recipe_that_needs_it():
    assert list(KINDS) == [item.name for item in fields(JobFacts)]
    needs = {name for recipe in recipe_names() for name in load_analysis(recipe).needs}
    assert needs == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["llm_overview", "trace_diff"])
@examples(20)
@given(st.data())
def test_ranks_merge_to_the_same_bits_in_any_order_and_grouping(recipe, data):
    ranks = list(facts_of_ranks(recipe))
    whole = plain(merged(ranks))
    order = data.draw(st.permutations(ranks))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(ranks) - 1))))
    groups = [merged(order[low:high]) for low, high in pairwise([0, *cuts, len(ranks)])]
    assert plain(merged(groups)) == whole
    place = data.draw(st.integers(0, len(groups)))
    assert plain(merged([*groups[:place], JobFacts(), *groups[place:]])) == whole
    assert plain(merged([pickle.loads(pickle.dumps(group)) for group in groups])) == whole
