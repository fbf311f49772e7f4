"""A group whose transfers take longer than those of its twins is named with its machine."""

from __future__ import annotations

import pytest
from quick_run import quick
from rank_world import ALL_REDUCE, GEMM, RankWorld

HOSTS = ("node0",) * 4 + ("node1",) * 4


def groups(folder, times, *, hosts=HOSTS, more=1.0):
    """Write 2 groups of 4; transfers of the second take so many times as long.

    Args:
        more: How much longer the second group computes.
    """
    world = RankWorld(8, hosts=hosts)
    across = ALL_REDUCE.replace("bf16", "f32")
    for step in range(10):
        world.begin(lambda _, step=step: f"step {step}")
        for _ in range(6):
            for rank in range(8):
                world.run(rank, GEMM, (80_000 + 900 * (rank > 3)) * (more if rank > 3 else 1))
            world.meet(range(4), ALL_REDUCE, 30_000)
            world.meet(range(4, 8), ALL_REDUCE, 30_000 * times)
        for rank in range(4):
            world.meet((rank, rank + 4), across, 50_000)
        world.end()
    return quick("comm_stats", world.write(folder))


def test_a_group_with_slow_links_is_named(tmp_path):
    tables = groups(tmp_path, 2.6)
    found = tables["findings"].set_index("rule").loc["slow_group"]
    assert found["title"] == (
        "Transfers of ranks 4-7 take 2.6 times those of ranks 0-3 (link, NIC or switch of `node1`)"
    )
    lost_ns = 10 * 6 * 1.6 * 30_000
    assert found["gain_ns"] == pytest.approx(lost_ns, rel=0.05)
    row = tables["groups"].set_index("ranks").loc["4-7"]
    assert (row["twins"], row["transfer_ns"]) == ("0-3", pytest.approx(60 * 78_000, rel=0.01))


@pytest.mark.parametrize("case", [{"times": 1.0}, {"times": 1.0, "more": 1.5}])
def test_a_group_that_waits_or_does_the_same_has_no_slow_links(case, tmp_path):
    assert "slow_group" not in set(groups(tmp_path, **case)["findings"]["rule"])


@pytest.mark.slow
def test_groups_on_one_and_on_two_machines_are_no_twins(tmp_path):
    hosts = ("node0",) * 4 + ("node1", "node1", "node2", "node2")
    assert "slow_group" not in set(groups(tmp_path, 2.6, hosts=hosts)["findings"]["rule"])
