"""Findings on ranks and communication: the victim of a wait is never blamed."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from results import tables_of

from nsys_llm.recipes.llm_hotspots.findings.balance import balance_findings
from nsys_llm.recipes.llm_hotspots.findings.bandwidth import bandwidth_findings
from nsys_llm.testing.trace_builder import TraceBuilder

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.fixture
def found_in(tmp_path):
    """Return a function that analyses ranks, each a list of (name, start, end), for findings.

    `hosts` names the machine of each rank.
    """

    def findings_of(*ranks, hosts=None):
        inputs, folder = [], Path(tempfile.mkdtemp(dir=tmp_path))
        for number, kernels in enumerate(ranks):
            trace = TraceBuilder(hostname=hosts[number] if hosts else "node0")
            for name, start, end in kernels:
                trace.kernel(name, start_ns=start, end_ns=end)
            inputs.append(trace.write_sqlite(folder / f"rank{number}.sqlite"))
        return balance_findings(tables_of(folder / "o", *inputs))

    return findings_of


def rules(findings):
    return [finding.rule for finding in findings]


@pytest.mark.parametrize(
    ("wait_ns", "severity"), [(5, None), (20, "low"), (60, "medium"), (600, "high")]
)
def test_communication_beside_no_computation_is_exposed(found_in, wait_ns, severity):
    # 5, 20, 60 and 600 ns of 1005 (0.5 %), 1020 (2.0 %), 1060 (5.7 %) and 1600 (38 %).
    (finding,) = found_in([("k", 0, 1000), (NCCL, 900, 1000 + wait_ns)])
    assert (finding.rule, finding.severity) == ("exposed_communication", severity)
    assert (finding.rank, finding.device_id, finding.gain.gain_ns) == (0, 0, wait_ns)
    assert finding.window_ns == (1000, 1000 + wait_ns)


def test_communication_that_computation_hides_is_no_finding(found_in):
    assert found_in([("k", 0, 1000), (NCCL, 100, 900)]) == []


def test_a_rank_whose_kernels_take_longer_is_slow_and_its_victims_are_not(found_in):
    # Rank 2 computes 1300 ns, the others 1000 and wait 300 in the collective.
    fast = [("gemm", 0, 1000), (NCCL, 1000, 1310)]
    slow = [("gemm", 0, 1300), (NCCL, 1300, 1310)]
    by_rule = {finding.rule: finding for finding in found_in(fast, fast, slow, fast)}
    # One finding on the rank: that it is late follows from that.
    assert set(by_rule) == {"exposed_communication", "slow_rank"}
    finding = by_rule["slow_rank"]
    assert (finding.rank, finding.culprit, finding.severity) == (2, "rank:2", "high")
    assert (finding.gain.gain_ns, finding.window_ns) == (300, (0, 1310))
    assert "30.0 % longer" in finding.title
    assert "2 launches, 2 on the median rank), so each launch takes longer" in finding.details
    assert "`gemm`: 300 ns above the median" in finding.details
    # What the others have more of it is waiting, which no faster transfer takes away.
    exposed = by_rule["exposed_communication"]
    assert (exposed.rank, exposed.gain.gain_ns, exposed.severity) == (2, 10, None)
    assert "Rank 0 has 310 ns of exposed communication: the difference is" in exposed.details


def test_a_rank_that_joins_late_is_named_and_the_gain_is_on_the_gpu_that_waits(found_in):
    # Rank 1 computes as long as the others, and begins 300 ns later.
    early = [("gemm", 0, 1000), (NCCL, 1000, 1310)]
    late = [("gemm", 0, 500), ("gemm", 800, 1300), (NCCL, 1300, 1310)]
    early = [("gemm", 0, 500), *[(name, max(begin, 500), end) for name, begin, end in early]]
    by_rule = {finding.rule: finding for finding in found_in(early, late, early)}
    finding = by_rule["late_rank"]
    assert (finding.culprit, finding.rank, finding.gain.gain_ns) == ("rank:1", 0, 300)
    assert (finding.gain.is_bound, finding.gain.wall_classes) == (False, ("communication",))
    assert finding.title == "Rank 1 is a likely straggler: rank 0 waits"
    assert finding.window_ns == (1000, 1310)


def test_a_rank_that_the_profiler_held_is_not_late(tmp_path):
    for rank in range(3):
        trace = TraceBuilder()
        late_ns = 300_000 if rank == 1 else 0
        trace.kernel("gemm", start_ns=0, end_ns=500_000)
        trace.kernel("gemm", start_ns=500_000 + late_ns, end_ns=1_000_000 + late_ns)
        trace.kernel(NCCL, start_ns=1_000_000 + late_ns, end_ns=1_310_000)
        if late_ns:
            flush = {"overhead_type": 3, "tid": 9}
            trace.overhead("CUPTI Buffer flush", start_ns=500_000, end_ns=800_000, **flush)
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    by_rule = {
        finding.rule: finding for finding in balance_findings(tables_of(tmp_path / "o", tmp_path))
    }
    assert by_rule["late_rank"].gain.gain_ns == 0
    assert by_rule["late_rank"].severity is None


def test_a_rank_with_more_launches_has_more_to_do(found_in):
    usual = [("gemm", 0, 100), ("gemm", 100, 200), (NCCL, 390, 400)]
    busy = [("gemm", 100 * nth, 100 * nth + 100) for nth in range(3)] + [(NCCL, 390, 400)]
    (slow,) = [finding for finding in found_in(usual, usual, busy) if finding.rule == "slow_rank"]
    assert slow.rank == 2
    assert "a different number of launches: 4 launches, 3 on the median rank" in slow.details
    assert slow.record is None


def test_a_longer_capture_is_no_slow_rank(found_in):
    # Twice the launches in twice the time.
    short = [("gemm", 0, 100), ("gemm", 110, 210)]
    long = [("gemm", 110 * nth, 110 * nth + 100) for nth in range(4)]
    assert "slow_rank" not in rules(found_in(short, short, long))


def test_ranks_that_look_on_are_not_compared(found_in):
    # Of 1000, 1000 and twice 1 ns the median would be 500.5.
    working, idle = [("gemm", 0, 1000)], [("gemm", 0, 1)]
    assert "slow_rank" not in rules(found_in(working, working, idle, idle))


def test_equal_ranks_and_a_single_one_have_no_finding(found_in):
    alike = [("gemm", 0, 1000), (NCCL, 990, 1000)]
    assert found_in(alike, alike) == []
    assert found_in(alike) == []


def test_a_late_rank_needs_the_same_collectives_on_all_ranks(found_in):
    many = [("gemm", 0, 900), (NCCL, 900, 940), (NCCL, 940, 1000)]
    few = [("gemm", 0, 900), (NCCL, 980, 1000)]
    none = [("gemm", 0, 900)]
    assert "late_rank" not in rules(found_in(few, many, few))
    assert "late_rank" not in rules(found_in(many, many, none))


def test_a_machine_whose_ranks_all_take_longer_is_named(found_in):
    usual, slow = [("gemm", 0, 1000)], [("gemm", 0, 1200)]
    ranks, hosts = [usual, usual, usual, slow, slow], ["a", "a", "a", "b", "b"]
    (finding,) = [
        finding for finding in found_in(*ranks, hosts=hosts) if finding.rule == "slow_host"
    ]
    # The mean is 1200 on b, the median rank takes 1000.
    assert (finding.name, finding.culprit, finding.ranks) == ("b", "host:b", (3, 4))
    assert (finding.severity, finding.gain.gain_ns, finding.rank) == ("high", 200, 3)
    assert finding.title == "Machine `b` is slow: compute 20.0 % longer"
    # Its ranks are not told again.
    assert "slow_rank" not in rules(found_in(*ranks, hosts=hosts))
    # One machine is not compared with itself, and one rank says nothing of its machine.
    assert "slow_host" not in rules(found_in(usual, usual, slow, slow))
    lone = found_in(usual, usual, slow, hosts=["a", "a", "b"])
    assert "slow_host" not in rules(lone)


KERNELS = {"gemm": 10_000, "attention": 6_000, "experts": 8_000, "norm": 2_000, "rope": 1_500}


def one_machine(found_in, seed, counts, factors):
    """Return the finding on machine b, whose ranks launch and take so much of each kernel.

    Args:
        found_in: The fixture.
        seed: Of the jitter of launches.
        counts: Launches of a kernel on b that differ from the 20 elsewhere.
        factors: How much longer a kernel takes on b.
    """
    rng = np.random.default_rng(seed)
    hosts, ranks = ["a", "a", "b", "b", "c", "c"], []
    for host in hosts:
        at, kernels = 0, []
        for name, length in KERNELS.items():
            for _ in range(counts.get(name, 20) if host == "b" else 20):
                factor = factors.get(name, 1.0) if host == "b" else 1.0
                end = at + round(length * factor * rng.normal(1, 0.002))
                kernels.append((name, at, end))
                at = end + 100
        ranks.append(kernels)
    matching = [finding for finding in found_in(*ranks, hosts=hosts) if finding.name == "b"]
    assert len(matching) <= 1
    return matching[0] if matching else None


@pytest.mark.parametrize("seed", [3])
def test_a_machine_with_another_mix_of_kernels_is_not_throttled(found_in, seed):
    # As many launches: 12 more of the longest kernel, 12 fewer of a short one.
    finding = one_machine(found_in, seed, {"gemm": 32, "norm": 8}, {})
    assert finding.rule == "slow_host"
    assert "`gemm` runs 32 times, 20 times on rank" in finding.details
    # 12 x (10 - 2) us of each rank, with the jitter of the median rank.
    assert re.search(r"\+9[56](\.\d)? us a rank by the number of launches", finding.details)
    assert "clocks" not in finding.recommendation + finding.details
    assert "each launch takes longer" not in finding.details


@pytest.mark.parametrize("seed", [3])
def test_a_machine_with_more_work_in_one_kernel_is_not_slow(found_in, seed):
    finding = one_machine(found_in, seed, {}, {"experts": 1.6})
    assert finding.rule == "uneven_work"
    assert "`experts`" in finding.title
    assert "clocks" not in finding.recommendation
    slow = one_machine(found_in, seed, {}, dict.fromkeys(KERNELS, 1.15))
    assert slow.rule == "slow_host"
    assert "each launch takes longer" in slow.details
    assert "clocks" in slow.recommendation
    assert one_machine(found_in, seed, {}, {}) is None


def test_names_of_kernels_and_machines_stand_in_backticks(found_in):
    name = "x`y<script>\n|z"
    for finding in found_in([(name, 0, 100)], [(name, 0, 400)], hosts=["h`i", "h`i"]):
        assert "`x'y<script> |z`" in finding.title + finding.details
        assert "(`h'i`)" in finding.details
        assert "\n" not in finding.title + finding.details


def test_bandwidth_is_judged_and_an_unused_pattern_told(tmp_path):
    trace = TraceBuilder()
    for nth, name in enumerate(["near", "far", "cached"]):
        trace.kernel(name, start_ns=100_000 * nth, duration_ns=10_000)
    trace.write_sqlite(tmp_path / "t.sqlite")
    # Of 3350 GB/s: 90 %, 50 %, 120 %.
    weights = {"near": 30_150_000, "far": 16_750_000, "cached": 40_200_000, "absent": 5}
    (tmp_path / "w.json").write_text(json.dumps(weights))
    options = ["--weights", str(tmp_path / "w.json")]
    listed = bandwidth_findings(tables_of(tmp_path / "o", tmp_path / "t.sqlite", options=options))
    by_rule = {finding.rule: finding for finding in listed}
    assert {
        rule: (finding.kind, finding.severity, finding.name) for rule, finding in by_rule.items()
    } == {
        "bandwidth_above_peak": ("capture", None, "cached"),
        "bandwidth_room": ("performance", "low", "far"),
        "bandwidth_pattern_unused": ("capture", None, None),
    }
    # At 80 % it would take 50/80 of its 10 us, of 210.
    room = by_rule["bandwidth_room"]
    assert (room.gain.gain_ns, room.gain.span_ns) == (10_000 * 3 // 8, 210_000)
    assert "are 1,675 GB/s of 3,350 GB/s" in room.details


def test_unlike_programs_are_not_compared(found_in):
    # 1, 4 and 10 launches of 100 ns: three programs, not three ranks of one job.
    programs = [[("gemm", 200 * n, 200 * n + 100) for n in range(count)] for count in (1, 4, 10)]
    rules = {finding.rule for finding in found_in(*programs)}
    assert not rules & {"slow_host"}


def test_a_rank_with_fewer_collectives_is_not_called_late(found_in):
    # Rank 2 takes part in 25 of 100 collectives of 10 us: a smaller group, nobody waits for it.
    many = [(NCCL, 20_000 * n, 20_000 * n + 10_000) for n in range(100)]
    rules = {finding.rule for finding in found_in(many, many, many[:25], many)}
    assert "late_rank" not in rules


def one_after_another(durations, *, steps=3):
    """Kernels of a rank, `durations` by name, in each of some steps."""
    kernels, at = [], 0
    for _ in range(steps):
        for name, duration in durations.items():
            kernels.append((name, at, at + duration))
            at += duration
    return kernels


def model(rng):
    """Durations of the kernels of a layer."""
    return {f"k{nth}": int(rng.integers(5_000, 20_000)) for nth in range(9)}


@pytest.mark.parametrize("seed", range(4))
def test_two_ranks_are_compared_with_each_other(found_in, seed):
    usual = model(np.random.default_rng(seed))
    slow = {name: duration * 12 // 10 for name, duration in usual.items()}
    ranks = [one_after_another(kernels) for kernels in (usual, slow)]
    order = [1, 0] if seed % 2 else [0, 1]
    (finding,) = [
        finding for finding in found_in(*(ranks[at] for at in order)) if finding.rule == "slow_rank"
    ]
    more_ns = 3 * (sum(slow.values()) - sum(usual.values()))
    assert (finding.rank, finding.severity, finding.gain.gain_ns) == (
        order.index(1),
        "high",
        more_ns,
    )
    assert finding.title.endswith("is a straggler: compute 20.0 % longer")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ranks_n", [2, 5])
def test_a_kernel_that_is_longer_on_one_rank_is_uneven_work_and_no_slow_gpu(
    found_in, seed, ranks_n
):
    rng = np.random.default_rng(seed)
    usual = {**model(rng), "experts_up": 60_000, "experts_down": 40_000}
    more = {**usual, "experts_up": 96_000, "experts_down": 64_000}
    busiest = int(rng.integers(ranks_n))
    listed = found_in(
        *(one_after_another(more if rank == busiest else usual) for rank in range(ranks_n))
    )
    (finding,) = [finding for finding in listed if finding.rule in ("slow_rank", "uneven_work")]
    assert (finding.rule, finding.rank, finding.name) == ("uneven_work", busiest, "experts_up")
    assert finding.gain.gain_ns == 3 * (96_000 + 64_000 - 100_000)
    assert "1.60 times" in finding.details
    assert "clock" not in finding.recommendation
    assert finding.record is None
