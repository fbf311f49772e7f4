"""What travels from a worker: the same paths, in few bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from machine import random_program, simulate, write_profiles
from machine.scenarios import gpu_bound
from path_truth import STEP
from quick_run import quick_run

#: For each collective of each rank: itself, and the path to it.
MOST_BYTES = 100


def forests(folder, program):
    write_profiles(simulate(program), folder)
    ranks = quick_run("step_budget", folder, *STEP).partial.ranks
    return [rank.forest for rank in ranks.values()]


@pytest.mark.parametrize("seed", range(6))
def test_paths_are_the_same_after_they_travelled(tmp_path, seed):
    for forest in forests(tmp_path, random_program(seed)):
        there = vars(pickle.loads(pickle.dumps(forest)))
        for name, value in vars(forest).items():
            if isinstance(value, np.ndarray):
                assert value.dtype == there[name].dtype
                np.testing.assert_array_equal(value, there[name], name)
            else:
                assert value == there[name]


def test_paths_travel_in_few_bytes(tmp_path):
    for forest in forests(tmp_path, gpu_bound(2, 60)):
        members_n = forest.member_start_ns.size
        assert len(pickle.dumps(forest)) < MOST_BYTES * members_n
        assert members_n == 300
