"""Eight ranks with one slow rank, one mix of shapes and 1 % jitter: each is read, and as no other.

The second half breaks one detection at a time, and the reading has to fail then.
"""

from __future__ import annotations

import numpy as np
import pytest
from results import rows, tables_of

from nsys_llm.analyses.collectives.waits import member_waits
from nsys_llm.numeric import tails
from nsys_llm.recipes.tail_stats.findings import paces
from nsys_llm.recipes.tail_stats.per_rank import launches
from nsys_llm.recipes.tail_stats.tables import kernels as kernel_tables
from nsys_llm.recipes.tail_stats.tables import stragglers as straggler_tables
from nsys_llm.recipes.tail_stats.tables.collective_classes import NONE
from nsys_llm.recipes.tail_stats.tables.lateness import Lateness
from nsys_llm.testing.trace_builder import TraceBuilder

RANKS, STEPS, LAYERS = 8, 20, 10
SLOW_RANK, SLOWNESS = 5, 1.2
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
#: Of a layer: a product; one kernel in two shapes; one with jitter; the reduction over all ranks.
NAMES = ["gemm", "mix", "norm", REDUCE]
GEMM, MIX, NORM, MEET = range(4)
USUAL_NS = {GEMM: 20_000, MIX: (4_000, 40_000), NORM: 3_000}
#: One launch of `norm` in a hundred, over all ranks, takes so many times as long.
JITTER_N, JITTER = RANKS * STEPS * LAYERS // 100, 4


def simulated():
    """Return kernel, start and end of every launch by rank, and the starts of the jittery ones."""
    rng = np.random.default_rng(5)
    jittery = rng.permutation(RANKS * STEPS * LAYERS)[:JITTER_N]
    jitter = np.ones(RANKS * STEPS * LAYERS)
    jitter[jittery] = JITTER
    pace = np.where(np.arange(RANKS) == SLOW_RANK, SLOWNESS, 1.0)
    free_ns = np.zeros(RANKS, dtype=np.int64)
    rows_of, planted = [[] for _ in range(RANKS)], set()

    def run(kernel, usual_ns, factor=1.0):
        nonlocal free_ns
        duration = usual_ns * factor * pace * rng.uniform(0.98, 1.02, RANKS)
        end_ns = free_ns + duration.astype(np.int64)
        add(kernel, end_ns)

    def add(kernel, end_ns):
        nonlocal free_ns
        for rank in range(RANKS):
            rows_of[rank].append((kernel, int(free_ns[rank]), int(end_ns[rank])))
        free_ns = end_ns + 500

    for layer in range(STEPS * LAYERS):
        run(GEMM, USUAL_NS[GEMM])
        run(MIX, USUAL_NS[MIX][layer % 2])
        slow = jitter[layer * RANKS : (layer + 1) * RANKS]
        planted |= {(rank, int(free_ns[rank])) for rank in np.flatnonzero(slow > 1).tolist()}
        run(NORM, USUAL_NS[NORM], slow)
        add(MEET, free_ns.max() + 8_000 + rng.integers(0, 300, RANKS))
    return rows_of, planted


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The folder of the set, and the (rank, start) of each jittery launch."""
    folder = tmp_path_factory.mktemp("eight")
    rows_of, jittery = simulated()
    for rank, rank_rows in enumerate(rows_of):
        kernel, start_ns, end_ns = np.array(rank_rows).T
        shape = 1 + 7 * ((kernel == MIX) & (end_ns - start_ns > 20_000))
        ones = np.ones_like(shape)
        report = TraceBuilder(hostname=f"node{rank // 4}").kernels(
            NAMES, kernel, start_ns=start_ns, end_ns=end_ns, grid=np.stack([shape, ones, ones], 1)
        )
        report.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder, jittery


@pytest.fixture
def read(planted, tmp_path):
    """Return a function that reads the set."""
    folder, jittery = planted
    return lambda: (tables_of(tmp_path / "out", folder, recipe="tail_stats"), jittery)


def reads_the_slow_rank(tables, _jittery):
    findings = tables["findings"]
    findings = findings[findings["kind"] == "performance"]
    assert rows(findings, "rule rank") == [("persistent_straggler", SLOW_RANK)]
    finding = findings.iloc[0]
    assert "compute 20." in finding["title"] or "compute 19.9" in finding["title"]
    # Of a layer 20, 22 and 3 us, a fifth more.
    usual_ns = STEPS * LAYERS * (USUAL_NS[GEMM] + sum(USUAL_NS[MIX]) / 2 + USUAL_NS[NORM])
    assert finding["gain_ns"] == pytest.approx((SLOWNESS - 1) * usual_ns, rel=0.02)
    worst = rows(tables["stragglers"], "communicator rank pattern")[0]
    assert worst == ("0-7", SLOW_RANK, "persistent")
    # It spends least time in collectives; who spends most is a victim.
    assert tables["tail_ranks"].set_index("rank")["communication_total_ns"].idxmin() == SLOW_RANK


def reads_the_mix(tables, _jittery):
    mix_rows = tables["tails"][tables["tails"]["name"] == "mix"]
    columns = "grid_x launches_n outliers_n configs_n shape_mix second_mode systematic"
    half = RANKS * STEPS * LAYERS // 2
    assert sorted(rows(mix_rows, columns)) == [
        (1, half, 0, 2, True, False, False),
        (8, half, 0, 2, True, False, False),
    ]


def reads_the_jitter(tables, jittery):
    counts = tables["tails"].set_index("name")["outliers_n"]
    assert counts["norm"] == JITTER_N
    # Some 140 us over eight ranks are a row, and no finding.
    assert "slow_launches" not in set(tables["findings"]["rule"])
    listed = tables["outliers"][~tables["outliers"]["communication"]]
    assert set(rows(listed, "rank start_ns")) == jittery


PLANTS = {"slow rank": reads_the_slow_rank, "mix": reads_the_mix, "jitter": reads_the_jitter}


@pytest.mark.parametrize("plant", PLANTS)
def test_each_plant_is_read(read, plant):
    PLANTS[plant](*read())


def none_late(lasts):
    return [Lateness(NONE)] * lasts.ranks_n


def of_another_rank(*given):
    return member_waits(*given)[::-1]


def by_name_only(columns):
    """Group launches by their first two columns, name and whether it is communication."""
    return launches_rows(columns[:2])


launches_rows = launches.distinct_rows


@pytest.mark.parametrize(
    ("plant", "module", "name", "broken"),
    [
        ("slow rank", straggler_tables, "lateness_patterns", none_late),
        ("slow rank", paces, "SLOW_RATIO", 9.0),
        ("slow rank", straggler_tables, "member_waits", of_another_rank),
        ("mix", launches, "distinct_rows", by_name_only),
        ("mix", kernel_tables, "SHAPE_RATIO", 100.0),
        ("jitter", tails, "OUTLIER_RATIO", 10),
        ("jitter", kernel_tables, "twice_medians", lambda order: 2 * order.high[:, -1]),
    ],
)
def test_a_plant_is_missed_where_its_detection_is_broken(
    read, monkeypatch, plant, module, name, broken
):
    monkeypatch.setattr(module, name, broken)
    with pytest.raises(AssertionError):
        PLANTS[plant](*read())
