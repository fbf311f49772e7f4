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


@pytest.mark.parametrize(
    ("program", "members_n"),
    [(random_program(1), None), (gpu_bound(2, 20), 100)],
    ids=["random", "bound"],
)
def test_paths_are_the_same_after_they_travelled_in_few_bytes(tmp_path, program, members_n):
    write_profiles(simulate(program), tmp_path)
    for paths in quick_run("step_budget", tmp_path, *STEP).facts[""].paths.values():
        sent = pickle.dumps(paths.forest)
        there, here = (
            {**vars(forest), **vars(forest.members)}
            for forest in (pickle.loads(sent), paths.forest)
        )
        assert there.pop("charges") == here["charges"]
        del there["members"]
        for name, value in there.items():
            assert value.dtype == here[name].dtype
            np.testing.assert_array_equal(value, here[name], name)
        if members_n:
            assert len(here["start_ns"]) == members_n
            assert len(sent) < MOST_BYTES * members_n
