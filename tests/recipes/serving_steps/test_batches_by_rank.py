"""The line on servers tells the batches of ranks where these differ, and who is the slowest."""

from __future__ import annotations

import pytest
from quick_run import quick
from rank_world import ALL_REDUCE, ATTENTION, RankWorld

from nsys_llm.recipes.serving_steps.findings.answer import headline


def line(folder, load, recipe="serving_steps"):
    world = RankWorld(3)
    for step in range(12):
        some = [load(rank, step) for rank in range(3)]
        world.begin(lambda rank, some=some: f"step[DECODE bs={some[rank]}]")
        for rank, requests in enumerate(some):
            world.run(rank, ATTENTION, 10_000 + 2_000 * requests)
        world.meet(range(3), ALL_REDUCE, 12_000)
        world.end()
    return headline(quick(recipe, world.write(folder)))[0]


@pytest.mark.parametrize(
    ("load", "where", "requests"),
    [
        ((32, 70, 32), "(rank 1, slowest)", "; rank 1: 70 requests, others 32"),
        ((20, 30, 70), "(rank 2, slowest)", "; 20 to 70 requests by rank"),
        ((32, 32, 32), "(rank 0 of 3)", "; 32 requests"),
    ],
)
def test_batches_by_rank(load, where, requests, tmp_path):
    said = line(tmp_path, lambda rank, _: load[rank])
    assert said.startswith(f"SGLang: 12 steps {where}: 12 decode ")
    assert said.endswith(requests)


def test_what_varies_is_no_rank_s(tmp_path):
    """The third has more in the median, and often less than the others."""

    def load(rank, step):
        return (8, 8, 20)[rank] + (29 * step + 17 * rank) % (60, 60, 75)[rank]

    assert " by rank" not in line(tmp_path, load)
    assert "others" not in line(tmp_path / "again", load)
