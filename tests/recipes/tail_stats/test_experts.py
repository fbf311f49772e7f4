"""What even experts gain, against simulated jobs that are run again with even ones."""

from __future__ import annotations

from random import Random

import pytest
from effort import seeds
from judgement import rank_plants
from machine import simulate, write_profiles
from quick_run import quick
from results import rows


def uneven_ns(folder, program):
    """Return what even experts gain by the tables, and over how many exchanges."""
    write_profiles(simulate(program), folder)
    frame = quick("tail_stats", folder)["communicators"]
    exchanges = frame[frame["operation"].isin(["dispatch", "combine"])]
    assert len(exchanges) == 2
    assert exchanges["uneven_n"].notna().all()
    assert (exchanges["uneven_ns"] <= exchanges["wait_ns"]).all()
    others = frame[~frame["operation"].isin(["dispatch", "combine"])]
    assert others["uneven_ns"].isna().all()
    return int(exchanges["uneven_ns"].sum()), rows(exchanges, "operation uneven_n collectives_n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant", [rank_plants.rotating, rank_plants.pinned], ids=["moves", "stays"]
)
@pytest.mark.parametrize("seed", seeds(6, 2))
def test_even_experts_gain_what_the_job_takes_less_with_them(seed, plant, tmp_path):
    program = plant(Random(seed), True)[0]
    wall_ns, even_ns = (simulate(some).wall_ns for some in (program, plant(Random(seed), False)[0]))
    gained_ns, counts = uneven_ns(tmp_path, program)
    assert 100 * abs(gained_ns - (wall_ns - even_ns)) / wall_ns < 1.5
    for operation, uneven_n, collectives_n in counts:
        assert (uneven_n == collectives_n) == (operation == "combine")


@pytest.mark.parametrize("seed", seeds(4, 2))
def test_even_experts_have_next_to_none_to_gain(seed, tmp_path):
    gained_ns, _ = uneven_ns(tmp_path, rank_plants.rotating(Random(seed), False)[0])
    assert gained_ns < 0.02 * simulate(rank_plants.rotating(Random(seed), False)[0]).wall_ns
