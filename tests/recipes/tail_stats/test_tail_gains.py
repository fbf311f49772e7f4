"""What findings gain, on plants, the demo and real traces: never more than a GPU has to give."""

from __future__ import annotations

import numpy as np
import pytest
from collective_world import world as collective_world
from finding_numbers import unexplained_numbers
from machine import simulate, write_profiles
from machine.scenarios import two_devices
from pipeline_world import ALL_REDUCE, World, run, run_blocking, write_pipeline
from quick_run import quick

from nsys_llm.recipes.tail_stats.findings.answer import findings
from nsys_llm.report.findings import CAPTURE, finding_record
from nsys_llm.testing.demo import write_demo
from nsys_llm.testing.trace_builder import TraceBuilder

MS = 1_000_000


def shown(tables):
    """Return the findings with a severity, after what has to be true of each of them."""
    listed = [
        finding
        for finding in findings(tables)
        if finding.kind == CAPTURE or finding.severity is not None
    ]
    wall = tables["wall"].groupby(["rank", "device_id", "wall_class"])["time_ns"].sum()
    spans = tables["wall"].groupby(["rank", "device_id"])["span_ns"].max()
    for finding in listed:
        assert unexplained_numbers(finding_record(finding)) == [], finding
        if finding.kind == CAPTURE:
            assert finding.severity is None
            assert finding.gain is None
            continue
        gpu = finding.rank, finding.device_id
        assert finding.gain.span_ns == spans[gpu]
        assert finding.gain.gain_ns <= sum(
            wall.get((*gpu, name), 0) for name in finding.gain.wall_classes
        )
        assert 100 * finding.gain.gain_ns >= finding.gain.span_ns
        assert finding.severity == finding.gain.severity
        assert finding.culprit
    at_fault = [finding.culprit for finding in listed if finding.culprit == f"rank:{finding.rank}"]
    assert len(at_fault) == len(set(at_fault)), "a rank stands in two findings"
    return [finding for finding in listed if finding.kind != CAPTURE]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    planted = write_demo(folder).planted
    return quick("tail_stats", folder / "baseline"), planted


def test_the_demo_has_one_finding_that_bounds_what_its_slow_rank_costs(demo):
    tables, planted = demo
    (finding,) = shown(tables)
    assert (finding.rule, finding.rank, finding.severity) == (
        "persistent_straggler",
        planted.slow_rank,
        "high",
    )
    # Made again without the slowness, it takes 19.07 of 146.1 ms less.
    assert 19.07 * MS <= finding.gain.gain_ns < 1.12 * 19.07 * MS
    assert (finding.gain.is_bound, finding.gain.wall_classes) == (True, ("compute",))
    # What it comes after the second last rank is nearer to that, and says so.
    ranks = tables["stragglers"].set_index("rank")
    assert ranks.loc[planted.slow_rank, "late_by_ns"] == pytest.approx(19.07 * MS, rel=0.02)


@pytest.mark.parametrize("seed", range(2))
def test_a_slow_rank_that_is_made_as_fast_as_the_others_gains_no_more(tmp_path, seed):
    """The truth is a second run of the same world without the slowness."""
    rng = np.random.default_rng(seed)
    slow, pace = int(rng.integers(4)), float(rng.uniform(1.2, 1.6))
    lengths = []
    for name, planted in (("slow", {slow: pace}), ("even", {})):
        runs = collective_world(4, 4, slow=planted, seed=seed)
        folder = write_world(tmp_path / name, runs)
        tables = quick("tail_stats", folder)
        lengths.append(int(tables["wall"].groupby("rank")["span_ns"].max()[slow]))
        listed = shown(tables)
        late = [finding for finding in listed if finding.rule.endswith("straggler")]
        assert [finding.rank for finding in late] == ([slow] if planted else [])
        if planted:
            # One product a layer, and jitter of a twentieth on all ranks.
            bound_ns = late[0].gain.gain_ns
            assert late[0].title.endswith("% longer")
    truth_ns = lengths[0] - lengths[1]
    assert 0.9 * truth_ns <= bound_ns <= 1.5 * truth_ns


def write_world(folder, runs):
    """Write ranks that compute up to each collective."""
    folder.mkdir()
    for rank, rank_rows in enumerate(runs):
        trace = TraceBuilder(hostname="node", system_clock_ns=7)
        free: int | None = None
        for stream, _, start, end in sorted(rank_rows, key=lambda row: row[2]):
            if free is not None and start > free + 1:
                # Pauses between steps are idle: their products are as long as a layer's.
                trace.kernel("gemm(int)", start_ns=max(free + 1, start - 90_000), end_ns=start)
            trace.kernel(ALL_REDUCE, start_ns=start, end_ns=end, stream_id=stream)
            free = end
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


@pytest.mark.parametrize(("ranks_n", "tensor_n", "slow"), [(4, 2, 1), (8, 4, 5), (8, 2, 0)])
def test_a_late_rank_of_a_tensor_parallel_group_is_blamed_alone(tmp_path, ranks_n, tensor_n, slow):
    # Its peers come late to the reductions over all groups, because they waited for it.
    runs = collective_world(ranks_n, tensor_n, slow={slow: 1.6}, steps=24)
    listed = shown(quick("tail_stats", write_world(tmp_path / "in", runs)))
    blamed = {finding.rank for finding in listed if finding.rule.endswith("straggler")}
    assert blamed == {slow}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("ranks_n", "tensor_n"), [(2, 2), (4, 4), (4, 2)])
def test_ranks_that_are_alike_wait_and_nobody_is_to_blame(tmp_path, ranks_n, tensor_n, seed):
    runs = collective_world(ranks_n, tensor_n, seed=seed)
    listed = shown(quick("tail_stats", write_world(tmp_path / "in", runs)))
    # The products before a reduction over all groups are of any length: that is a tail.
    assert {finding.rule for finding in listed} <= {"collective_waits", "slow_launches"}


@pytest.mark.parametrize("simulate", [run, run_blocking])
@pytest.mark.parametrize("seed", range(2))
def test_a_bubble_gains_what_the_busiest_stage_leaves_open(tmp_path, simulate, seed):
    world = World(4, 8, slow=((seed, 1.4),), seed=seed)
    ran = simulate(world)
    by_rule = {
        finding.rule: finding
        for finding in shown(quick("tail_stats", write_pipeline(tmp_path / "in", ran)))
    }
    assert set(by_rule) == {"pipeline_bubble", "slow_stage"}
    busy_ns = [sum(end - start for start, end, _ in stage.computes) for stage in ran]
    window_ns = max(stage.computes[-1][1] for stage in ran) - min(
        stage.computes[0][0] for stage in ran
    )
    bubble = by_rule["pipeline_bubble"]
    assert bubble.rank == seed == int(np.argmax(busy_ns))
    assert bubble.gain.gain_ns <= window_ns - max(busy_ns)
    # The slow stage computes 1.4 times as long; evened, all take the mean of the four.
    slow = by_rule["slow_stage"].gain.gain_ns
    assert slow == pytest.approx(max(busy_ns) - np.mean(busy_ns), rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_random_plants_keep_to_the_scale(tmp_path, seed):
    rng = np.random.default_rng(100 + seed)
    pace = {rank: float(rng.uniform(1.0, 2.0)) for rank in range(4) if rng.random() < 0.5}
    runs = collective_world(4, int(rng.choice([2, 4])), slow=pace, seed=seed)
    shown(quick("tail_stats", write_world(tmp_path / "in", runs)))


@pytest.mark.parametrize(
    "name",
    ["h100_mfu/before.sqlite", "h100_mfu/after.sqlite", "h100_mfu_ranks/before",
     "h100_mfu_ranks/after"],
)  # fmt: skip
def test_real_ranks_wait_for_each_other_and_none_is_a_straggler(traces, name):
    (finding,) = shown(quick("tail_stats", traces / name))
    # By hand: rank 1 causes 10.9 of 13.4 ms, rank 0 of the later run 18.2 ms with 4.4 by flushes.
    expected = (0, 10_898_336, 3.6) if "before" in name else (1, 13_860_253, 4.6)
    assert finding.rule == "collective_waits"
    assert (finding.rank, finding.gain.gain_ns, round(finding.gain.gain_pct, 1)) == expected
    assert finding.culprit == "communicator:0-1"


@pytest.mark.parametrize("seed", range(4))
def test_the_only_rank_is_not_slower_than_others(tmp_path, seed):
    """Its two devices run the same kernel for 20 and for 60 us: each does another part."""
    write_profiles(simulate(two_devices(seed=seed)), tmp_path)
    tables = quick("tail_stats", tmp_path)
    assert set(tables["tail_ranks"]["device_id"]) == {0, 1}
    assert "slow_throughout" not in {finding.rule for finding in findings(tables)}
