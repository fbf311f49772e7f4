"""How many microbatches a step of a pipeline has, against those that were planted."""

from __future__ import annotations

from random import Random

import pytest
from effort import seeds
from judgement import pipeline_plants
from machine import simulate, write_profiles
from quick_run import quick

#: Seeds of jobs whose messages are not matched by time.
UNMATCHED = (13, 18)


@pytest.mark.nightly("2", "6", "10", "14", "8", "12")
@pytest.mark.slow
@pytest.mark.parametrize("seed", [seed for seed in seeds(20, 8) if seed not in UNMATCHED])
def test_microbatches_are_those_of_the_schedule(seed, tmp_path, monkeypatch):
    shapes, shape_of = [], pipeline_plants._shape
    monkeypatch.setattr(
        pipeline_plants, "_shape", lambda *given: shapes.append(shape_of(*given)) or shapes[-1]
    )
    program = pipeline_plants.even_stages(Random(seed), False)[0]
    write_profiles(simulate(program), tmp_path)
    counts = set(quick("comm_stats", tmp_path)["bubbles"]["microbatches_n"].dropna())
    assert counts <= {shapes[-1].microbatches_n}
    # Whether stages are found is tested elsewhere; without tensor parallelism they are.
    assert counts or shapes[-1].tensor_n > 1
