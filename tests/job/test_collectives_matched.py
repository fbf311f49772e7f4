"""Waits of random sets whose clocks drift and whose captures are cut, against the generator."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from clock_world import ClockWorld, Communicators, matched_waits
from effort import nightly_but
from judgement.jobs import each_rank, is_reduction
from judgement.truth import planted
from machine import simulate, write_profiles
from quick_run import quick

from nsys_llm.job.collectives.alignment import Executions
from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE, Told
from nsys_llm.job.collectives.matching import Lane, Matched
from nsys_llm.job.communication_split import waiting_and_transfer

#: Ways to divide eight ranks: all, two nodes, across nodes, pairs.
DIVISIONS = [
    [list(range(8))],
    [list(range(4)), list(range(4, 8))],
    [[rank, rank + 4] for rank in range(4)],
    [[rank, rank + 1] for rank in range(0, 8, 2)],
]


def assert_within(world, matched, part=0.01):
    true, waits = world.waits(), matched_waits(matched)
    assert set(waits) == set(true)
    assert {key: waits[key] for key in true} == {
        key: pytest.approx(wait_ns, rel=part) for key, wait_ns in true.items()
    }


def drifting(rng, ranks_n, each_n, most_ppm=50):
    """Return offsets and rates of nodes of `each_n` ranks."""
    node = np.arange(ranks_n) // each_n
    offset_ns = rng.integers(-3_000_000, 3_000_001, ranks_n)[node]
    return offset_ns, rng.uniform(-most_ppm, most_ppm, ranks_n)[node]


@pytest.mark.parametrize("seed", range(6))
def test_clocks_that_drift_over_20_s_split_no_communicator(seed):
    rng = np.random.default_rng(seed)
    sets = [Communicators(7, DIVISIONS[0])]
    if seed % 2:
        sets.append(Communicators(9, DIVISIONS[1], 2))
    world = ClockWorld.run(8, sets, steps=700, compute_ns=3e7 / (1 + seed % 2 * 2), rng=rng)
    assert world.length_ns > 20_000_000_000
    offset_ns, ppm = drifting(rng, 8, 4, most_ppm=(50, 5)[seed % 2])
    matched = world.matched(offset_ns=offset_ns.tolist(), ppm=ppm.tolist())
    assert_within(world, matched)
    for clock, fit in enumerate(matched.clocks):
        assert fit.root == 0
        assert 1e6 * fit.rate == pytest.approx(ppm[clock] - ppm[0], abs=0.1)


def slewed(rng, length_ns):
    """Return how two nodes slew their clocks: other rates in each quarter."""
    quarters = np.arange(4) * length_ns / 4
    turns = np.array((1, -1, 1, -1))
    rates = [way * turns * rng.uniform(100, 400, 4) for way in (1, -1)]
    nodes = [[*zip(quarters, some, strict=True)] for some in rates]
    return [nodes[0]] * 4 + [nodes[1]] * 4


@pytest.mark.parametrize("lone", [False, True], ids=["halves", "a rank alone"])
def test_a_communicator_that_slewing_clocks_cut_is_not_believed(lone):
    rng = np.random.default_rng(1)
    world = ClockWorld.run(
        8, [Communicators(7, DIVISIONS[0])], steps=300, compute_ns=5e6, rng=rng, scatter=0.02
    )
    slews = slewed(rng, world.length_ns)
    slews = [*[slews[0]] * 7, slews[-1]] if lone else slews
    hosts = [f"node{slew is slews[-1]}" for slew in slews]
    matched = world.matched(hosts=hosts, slews=slews)
    assert not matched.is_aligned
    assert [len(sequence.owners) for sequence in matched.sequences] == ([7] if lone else [4, 4])
    assert {sequence.confidence for sequence in matched.sequences} == {LOW_CONFIDENCE}
    for owner in range(7):
        waiting, transfer = waiting_and_transfer(matched.sequences, owner)
        assert not len(waiting) + len(transfer)


@pytest.mark.parametrize("scatter", [0.1, 0.02])
def test_replicas_on_machines_apart_are_believed(scatter):
    rng = np.random.default_rng(1)
    sets = [Communicators(7, DIVISIONS[1])]
    world = ClockWorld.run(8, sets, steps=300, compute_ns=5e6, rng=rng, scatter=scatter)
    hosts = [f"node{rank // 4}" for rank in range(8)]
    matched = world.matched(hosts=hosts, slews=slewed(rng, world.length_ns))
    assert not matched.is_aligned
    assert {sequence.confidence for sequence in matched.sequences} == {"high"}
    assert_within(world, matched)


def test_64_ranks_on_clocks_of_their_own_keep_their_waits():
    rng = np.random.default_rng(5)
    world = ClockWorld.run(
        64, [Communicators(7, [list(range(64))])], steps=500, compute_ns=4e7, rng=rng
    )
    assert world.length_ns > 20_000_000_000
    offset_ns, ppm = drifting(rng, 64, 1)
    assert_within(world, world.matched(offset_ns=offset_ns.tolist(), ppm=ppm.tolist()))


@pytest.mark.parametrize("seed", range(4))
def test_clocks_that_do_not_drift_get_no_rate_and_the_median_offset(seed):
    rng = np.random.default_rng(seed)
    world = ClockWorld.run(8, [Communicators(7, DIVISIONS[0])], steps=90, compute_ns=1e6, rng=rng)
    ahead_ns = rng.integers(-3_000_000, 3_000_001, 8)
    matched = world.matched(offset_ns=ahead_ns.tolist())
    for rank, fit in enumerate(matched.clocks):
        apart = np.sort(world.end_ns[rank, 7] - world.end_ns[0, 7])
        median_ns = int(apart[(apart.size - 1) // 2])
        expected_ns = median_ns + ahead_ns[rank] - ahead_ns[0]
        assert (fit.offset_ns, fit.rate) == (expected_ns, 0.0)


# Of each seed follow the number of sets (2 of them) and which end is cut (3).
@pytest.mark.parametrize(
    ("seed", "drift"),
    nightly_but(
        product(range(30), (False, True)),
        [(seed, drift) for drift in (False, True) for seed in range(6 * drift, 6 + 6 * drift)],
    ),
)
def test_a_cut_capture_crosses_no_communicators(seed, drift):
    rng = np.random.default_rng(100 + seed)
    kinds = rng.choice(len(DIVISIONS), 2 + seed % 2, replace=False)
    sets = [
        Communicators(7 + 6 * place, DIVISIONS[kind], int(rng.integers(1, 4)))
        for place, kind in enumerate(kinds)
    ]
    world = ClockWorld.run(
        8, sets, steps=160, compute_ns=rng.uniform(1e5, 4e5), rng=rng, scatter=0.2
    )
    at = float(rng.uniform(0.3, 0.9)) * world.length_ns
    world.cut(int(rng.integers(8)), *((0, at) if seed % 3 else (world.length_ns - at, 2**62)))
    offset_ns, ppm = drifting(rng, 8, 4) if drift else (np.zeros(8, dtype=int), np.zeros(8))
    matched = world.matched(offset_ns=offset_ns.tolist(), ppm=ppm.tolist())
    true, waits = world.waits(), matched_waits(matched)
    unsure = {
        ",".join(str(owner) for owner in sequence.owners)
        for sequence in matched.sequences
        if sequence.confidence == LOW_CONFIDENCE
    }
    wrong = {
        key: (waits.get(key), true.get(key))
        for key in {*true, *waits}
        if key[0] not in unsure and waits.get(key) != pytest.approx(true.get(key, 0), rel=0.01)
    }
    assert not wrong


CUSTOM = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, (int)4>(vllm::RankData *)"


@pytest.mark.parametrize(
    ("given", "kernel", "confidence"),
    [
        (4, CUSTOM, "high"),
        (2, CUSTOM, LOW_CONFIDENCE),
        (2, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "high"),
    ],
    ids=["all", "two of four", "a name that tells nothing"],
)
def test_a_group_with_fewer_members_than_its_name_tells_is_not_believed(
    given, kernel, confidence, tmp_path
):
    """Whom of the others they waited for, nobody knows: the wall keeps communication whole."""
    program, _, _ = planted("equal_ranks", 1)
    ranks = [[_named(item, kernel) for item in rank.threads[0]] for rank in program.ranks]
    program = each_rank(program, lambda rank: {"threads": (tuple(ranks[rank]),)})
    paths = write_profiles(simulate(program), tmp_path)
    tables = quick("tail_stats", *paths[:given])
    assert set(tables["communicators"]["confidence"]) == {confidence}
    wall = tables["wall"]
    wall = wall[(wall["wall_class"] == "communication") & (wall["time_ns"] > 0)]
    known = {"waiting", "transfer"} & set(wall["detail"].dropna())
    assert bool(known) == (confidence == "high")


def _named(item, kernel):
    return replace(item, work=replace(item.work, name=kernel)) if is_reduction(item) else item


def test_ids_and_sizes_tell_of_other_members():
    track = Executions(np.arange(0, 900, 100), np.arange(50, 950, 100))
    ids = np.full(9, 5)
    lanes = [Lane(owner, 0, "ncclDevKernel_AllReduce_x(y)", 7, track, ids) for owner in range(3)]
    rows = np.arange(9)

    def is_doubted(members_n, sizes=(), owners_n=3):
        matched = Matched(tuple(lanes[:members_n]), (rows,) * members_n, (0,) * members_n)
        return Told.of(lanes[:owners_n], sizes).doubted(matched).is_doubted

    assert not is_doubted(3)
    assert not is_doubted(3, [(5, 3), (6, 8)])
    assert is_doubted(3, [(5, 4)])
    assert is_doubted(2)
    assert not is_doubted(2, owners_n=2)
