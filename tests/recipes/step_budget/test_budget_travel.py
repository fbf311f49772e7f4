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
    ranks = quick_run("step_budget", folder, *STEP).facts[""].paths
    return [rank.forest for rank in ranks.values()]


def arrays(forest):
    parts = {**vars(forest), **vars(forest.members)}
    del parts["members"]
    return parts


@pytest.mark.parametrize("seed", range(3))
def test_paths_are_the_same_after_they_travelled(tmp_path, seed):
    for forest in forests(tmp_path, random_program(seed)):
        there = arrays(pickle.loads(pickle.dumps(forest)))
        assert there.pop("charges") == forest.charges
        for name, value in there.items():
            assert value.dtype == arrays(forest)[name].dtype
            np.testing.assert_array_equal(value, arrays(forest)[name], name)


def test_paths_travel_in_few_bytes(tmp_path):
    for forest in forests(tmp_path, gpu_bound(2, 20)):
        members_n = forest.members.start_ns.size
        assert len(pickle.dumps(forest)) < MOST_BYTES * members_n
        assert members_n == 100
