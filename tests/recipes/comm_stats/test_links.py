"""Slow links and small messages: each is found where it is planted, and nowhere else."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from nccl_payloads import add_payloads, call_blob
from quick_run import quick
from results import rows
from trace_builder import TraceBuilder

from nsys_llm.recipes.comm_stats.analysis import ANALYSIS
from nsys_llm.recipes.comm_stats.findings.links import link_findings

KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
BYTES = 64 << 20


def written(
    folder, messages, *, gpu_name="NVIDIA H100 80GB HBM3", hosts=("node", "node"), gpus_n=8
):
    """Write two ranks whose steps have all-reduces of (bytes, ns) each, half of each idle."""
    folder.mkdir()
    for rank, host in enumerate(hosts):
        trace, payloads = TraceBuilder(hostname=host, gpu_name=gpu_name), {}
        trace.process(pid=100, gpu_ids=range(gpus_n))
        at = 1_000_000
        for step in range(6):
            begun = at
            for size, length_ns in messages:
                trace.nvtx("ncclAllReduce", at, at + 900, domain="NCCL")
                payloads["ncclAllReduce", at] = call_blob("ncclAllReduce", 9, size, 0)
                start = at + 2_000 + 200 * rank
                launch = at + 100, at + 800
                trace.kernel(
                    KERNEL,
                    start_ns=start,
                    end_ns=at + 2_200 + length_ns,
                    launch=launch,
                    stream_id=9,
                )
                trace.kernel(
                    "gemm(int)",
                    start_ns=at + 2_400 + length_ns,
                    duration_ns=length_ns,
                    launch=(at + 820, at + 860),
                )
                at += 3_000 + 2 * length_ns
            trace.nvtx(f"ProfilerStep#{step}", begun - 50, at - 100)
        path = trace.write_sqlite(folder / f"rank{rank}.sqlite")
        add_payloads(path, payloads)
    return folder


@pytest.mark.parametrize(
    ("length_ns", "options", "expected"),
    [
        (800_000, (), 100 * BYTES / 800_000 / 450),
        (180_000, (), None),
        pytest.param(800_000, ("--link-bandwidth", "100"), None, marks=pytest.mark.nightly),
        pytest.param(
            180_000,
            ("--link-bandwidth", "800"),
            100 * BYTES / 180_000 / 800,
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_slow_link_is_found_by_its_peak(length_ns, options, expected, tmp_path):
    folder = written(tmp_path / "in", [(BYTES, length_ns)] * 6)
    tables = quick("comm_stats", folder, *options)
    findings = tables["findings"].set_index("rule")
    assert ("slow_link" in findings.index) == (expected is not None)
    ((bus, peak_pct, exposed_ns),) = rows(tables["message_sizes"], "busbw_gb_s peak_pct exposed_ns")
    assert bus == pytest.approx(BYTES / length_ns, rel=1e-9)
    assert exposed_ns == 36 * length_ns
    if expected is not None:
        assert peak_pct == pytest.approx(expected, rel=1e-9)
        bound_ns = findings.loc["slow_link", "bound_ns"]
        assert bound_ns == pytest.approx((1 - expected / 100) * exposed_ns, rel=1e-6)


@pytest.mark.parametrize(
    ("gpu_name", "gpus_n", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 8, 450),
        ("NVIDIA H100 PCIe", 8, None),
        ("NVIDIA H100 80GB HBM3", 4, None),
        ("NVIDIA A100-SXM4-80GB", 8, 300),
        ("NVIDIA A100-SXM4-80GB", 4, None),
        ("Tesla V100-SXM2-32GB", 8, None),
        ("NVIDIA GH200 480GB", 8, None),
        ("NVIDIA H200", 8, 450),
    ],
)
def test_a_pair_has_a_peak_where_switches_give_it_all_links(gpu_name, gpus_n, expected, tmp_path):
    folder = written(tmp_path / "in", [(BYTES, 800_000)], gpu_name=gpu_name, gpus_n=gpus_n)
    assert rows(quick("comm_stats", folder)["message_sizes"], "peak_gb_s") == [(expected,)]


def test_no_peak_is_known_between_machines(tmp_path):
    far = written(tmp_path / "far", [(BYTES, 180_000)], hosts=("a", "b"))
    assert rows(quick("comm_stats", far)["message_sizes"], "peak_gb_s") == [(None,)]


def test_messages_of_16_mib_accuse_no_link(tmp_path):
    folder = written(tmp_path / "in", [(16 << 20, 90_000)] * 6)
    tables = quick("comm_stats", folder)
    ((peak_pct,),) = rows(tables["message_sizes"], "peak_pct")
    assert peak_pct == pytest.approx(100 * (16 << 20) / 90_000 / 450, rel=1e-9)
    assert "slow_link" not in set(tables["findings"]["rule"])


def test_the_speed_of_a_link_may_have_a_fraction(tmp_path):
    folder = written(tmp_path / "in", [(BYTES, 800_000)])
    tables = quick("comm_stats", folder, "--link-bandwidth", "112.5")
    assert rows(tables["message_sizes"], "peak_gb_s") == [(112.5,)]
    for text in ("0", "0.0", "-1", "x"):
        with pytest.raises(SystemExit):
            quick("comm_stats", folder, "--link-bandwidth", text)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("small_n", "axis", "fires"),
    [(110, "dp", True), (90, "dp", False), (110, "tp", False), (110, None, False)],
)
def test_many_small_messages_that_may_be_fused_are_found(small_n, axis, fires, tmp_path):
    folder = written(tmp_path / "in", [(1024, 8_000)] * small_n + [(BYTES, 150_000)])
    tables = quick("comm_stats", folder, *(["--layout", f"{axis}=2"] if axis else []))
    findings = tables["findings"].set_index("rule")
    assert ("small_messages" in findings.index) == fires
    if fires:
        exposed_ns = 6 * small_n * 8_000
        bound_ns = exposed_ns - 6 * small_n * 1024 / (BYTES / 150_000)
        assert findings.loc["small_messages", "bound_ns"] == pytest.approx(bound_ns, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("candidates", "fires"), [("dp, world", True), ("tp, dp", False)])
def test_a_group_whose_axis_is_one_of_several_may_be_fused_unless_one_is_tensor(
    candidates, fires, tmp_path
):
    folder = written(tmp_path / "in", [(1024, 8_000)] * 110 + [(BYTES, 150_000)])
    tables = quick("comm_stats", folder)
    tables["groups"] = tables["groups"].assign(
        axis=pd.array([None], "string"), candidates=pd.array([candidates], "string")
    )
    assert (["small_messages"] * fires) == [some.rule for some in link_findings(tables)]


@pytest.mark.parametrize(
    ("size", "length_ns", "gpu_name", "ranks_n", "expected"),
    [
        # 138,547 GB/s of a link that carries 450; and what no link of any GPU carries.
        (8 << 30, 62_000, "NVIDIA H100 80GB HBM3", 2, (None, "implausible_size")),
        (BYTES, 30_000, "NVIDIA GH200 480GB", 2, (None, "implausible_size")),
        # A link that is used to the full; one of which nothing is known; and one that carries 447
        # while switches reduce on the way, so that the bus bandwidth is 1.5 times that.
        (BYTES, 145_000, "NVIDIA H100 80GB HBM3", 2, (BYTES / 145_000, None)),
        (BYTES, 40_000, "NVIDIA GH200 480GB", 2, (BYTES / 40_000, None)),
        (BYTES, 150_000, "NVIDIA H100 80GB HBM3", 4, (1.5 * BYTES / 149_600, "in_network")),
    ],
)
def test_a_size_that_no_link_carries_in_its_time_has_no_bandwidth(
    size, length_ns, gpu_name, ranks_n, expected, tmp_path
):
    hosts = ("node",) * ranks_n
    folder = written(tmp_path / "in", [(size, length_ns)], gpu_name=gpu_name, hosts=hosts)
    tables = quick("comm_stats", folder)
    ((bus, reason),) = rows(tables["message_sizes"], "busbw_gb_s reason")
    assert (bus and round(bus, 3), reason) == (expected[0] and round(expected[0], 3), expected[1])
    titles = dict(rows(tables["findings"], "rule title"))
    assert ("implausible_sizes" in titles) == ("GB/s" not in ANALYSIS.answer(tables))
    if bus is None:
        assert re.fullmatch(
            r"Sizes of 6 collectives do not fit their time: the largest is (8\.59 GB|67\.1 MB)",
            titles["implausible_sizes"],
        )
