"""Findings on copies: each fires on its case, with the numbers, and not without it."""

from __future__ import annotations

import pytest
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_hotspots.findings.memops import copy_findings
from nsys_llm.report.causes import Cause
from nsys_llm.report.prices.pricing import priced


@pytest.fixture
def found_in(tmp_path_factory):
    """Return a function that analyses a rank and returns its findings by rule."""

    def findings_of(trace):
        tables = quick(
            "llm_hotspots", trace.write_sqlite(tmp_path_factory.mktemp("r") / "r.sqlite")
        )
        findings = priced(copy_findings(tables), tables)
        assert len({(finding.rule, finding.name) for finding in findings}) == len(findings)
        return {finding.rule: finding for finding in findings}

    return findings_of


def busy(end_ns=1000):
    """Return a rank with a kernel from 0 to `end_ns`."""
    return TraceBuilder().kernel("k", start_ns=0, end_ns=end_ns)


@pytest.mark.parametrize(("copy_ns", "severity"), [(5, None), (900, "medium")])
def test_copies_that_computation_could_hide_gain_as_much(found_in, copy_ns, severity):
    # 5 and 900 ns of 1005 (0.5 %) and 1900 (47 %), in all less than 0.1 ms.
    trace = busy().memcpy("HtoD", start_ns=1000, duration_ns=copy_ns, size_bytes=8)
    finding = found_in(trace)["exposed_copies"]
    assert (finding.severity, finding.rank, finding.device_id, finding.name) == (
        severity,
        0,
        0,
        "HtoD",
    )
    assert (finding.price.gain_ns, finding.price.span_ns) == (copy_ns, 1000 + copy_ns)
    assert (finding.price.bound_ns, finding.price.wall_classes) == (copy_ns, ("copies",))
    assert finding.window_ns == (1000, 1000 + copy_ns)
    assert "1 HtoD copies (pinned to device, 8 B" in finding.details


@pytest.mark.slow
def test_copies_that_bind_the_job_gain_what_can_run_beside_them(found_in):
    # 300 ns of kernels, 10 us of copies to the device: the rest can only become fewer bytes.
    alone = found_in(busy(300).memcpy("HtoD", start_ns=300, end_ns=10_300, size_bytes=8))
    assert set(alone) == {"link_bound"}
    price = alone["link_bound"].price
    assert (price.about_ns, price.bound_ns) == (300, 10_000)
    assert alone["link_bound"].cause == Cause("copies", detail="HtoD")
    assert alone["link_bound"].recommendation.startswith("Move fewer bytes")
    # Nothing to speak of runs beside them: what fewer bytes gain is not known.
    few = busy(50).memcpy("HtoD", start_ns=50, end_ns=10_050, size_bytes=8)
    price = found_in(few)["link_bound"].price
    assert (price.about_ns, price.bound_ns, price.severity) == (None, 10_000, "medium")
    both = busy(9_000).memcpy("HtoD", start_ns=9_000, end_ns=19_000, size_bytes=8)
    both.memcpy("DtoH", start_ns=19_000, end_ns=28_000, size_bytes=8)
    price = found_in(both)["link_bound"].price
    # Half of one way while the other runs, 4.5 us; of the 14.5 left computation hides 9.
    assert (price.about_ns, price.bound_ns) == (13_500, 19_000)


def streams(*ways, pinned_bytes=None, gpu_name="NVIDIA A100-SXM4-80GB"):
    """Return a kernel of 0.3 ms and copies of 10 ms of pageable memory, of some bytes each way.

    Args:
        pinned_bytes: Of a pinned copy of 1 ms at the end.
    """
    trace = TraceBuilder(gpu_name=gpu_name).kernel("nvjet_a", start_ns=0, duration_ns=300_000)
    at, side = 300_000, {"HtoD": "src_memory", "DtoH": "dst_memory"}
    for kind, size_bytes in ways:
        memory = {side[kind]: "pageable"}
        trace.memcpy(kind, start_ns=at, duration_ns=10_000_000, size_bytes=size_bytes, **memory)
        at += 10_000_000
    if pinned_bytes is not None:
        how = {"size_bytes": pinned_bytes, "src_memory": "pinned"}
        trace.memcpy("HtoD", start_ns=at, duration_ns=1_000_000, **how)
    return trace


#: Half of what pinned copies of an A100 reach, 0.77 of 16 lanes of the fourth generation, in 10 ms.
HALF_OF_A100 = round(0.5 * 0.77 * 16 * 16 * 128 / 130 / 8 * 10_000_000)


@pytest.mark.parametrize(
    ("trace", "about_ns", "title", "first"),
    [
        # 27.7 GB/s one way: faster than pinned copies of that link, so that computation is all.
        (streams(("HtoD", 277_000_000)), 300_000, "pageable copies: 277 MB", "Move"),
        # Pinned copies take half, and computation hides some of what is left.
        (streams(("HtoD", HALF_OF_A100)), 5_300_000, "pageable copies: 121 MB", "Move"),
        # Nobody knows the link; a pinned copy of the run that goes the same way tells.
        (streams(("HtoD", HALF_OF_A100), gpu_name="GPU"), 300_000, "pageable copies: 121", "Move"),
        (
            streams(("HtoD", 100_000_000), pinned_bytes=20_000_000, gpu_name="GPU"),
            5_300_000,
            "pageable copies: 120 MB",
            "Move",
        ),
        # Both ways: 5 ms are left of each, of which half of one runs beside the other.
        (
            streams(("HtoD", HALF_OF_A100), ("DtoH", HALF_OF_A100)),
            10_000_000 + 2_500_000 + 300_000,
            "pageable copies that do not overlap: 243 MB",
            "Copy in both directions",
        ),
    ],
)
def test_pageable_copies_that_bind_the_job_gain_by_what_is_known(
    found_in, trace, about_ns, title, first
):
    finding = found_in(trace)["link_bound"]
    assert finding.price.about_ns == pytest.approx(about_ns, rel=1e-6)
    assert finding.title.startswith(f"Bound by {title}")
    assert finding.recommendation.startswith(first)
    numbers = {cell.field: cell.value for cell in finding.evidence}
    assert numbers["exposed_ns"] == finding.price.bound_ns


@pytest.mark.slow
def test_copies_inside_the_device_are_not_called_exposed(found_in):
    by_rule = found_in(busy().memcpy("DtoD", start_ns=1000, end_ns=1200, size_bytes=8))
    assert set(by_rule) == {"device_copies"}
    # 200 of 1200 ns.
    finding = by_rule["device_copies"]
    assert (finding.severity, finding.price.gain_ns) == ("medium", 200)
    assert finding.cause == Cause("copies", detail="DtoD")
    assert finding.title == "1 copy inside the device, 8 B: 16.7 %"
    beside = found_in(busy().memcpy("DtoD", start_ns=500, end_ns=900, size_bytes=8))
    assert beside["device_copies"].severity is None


def pageable(size_bytes, memory="pageable", start_ns=1_000_000):
    """Return a rank with four copies of 1 ms, two each way, behind a kernel of 1 ms."""
    trace = busy(1_000_000)
    for nth in range(4):
        there = {"src_memory": memory} if nth < 2 else {"dst_memory": memory}
        trace.memcpy(
            "HtoD" if nth < 2 else "DtoH",
            start_ns=start_ns + nth * 1_000_000,
            duration_ns=1_000_000,
            size_bytes=size_bytes,
            **there,
        )
    return trace


def test_large_pageable_copies_gain_what_pinned_ones_copy_faster(found_in):
    finding = found_in(pageable(6_000_000))["pageable_copies"]
    assert finding.severity == "high"
    assert finding.title == "4 copies of pageable memory, 24 MB: 80.0 %"
    assert "4 DtoH and HtoD copies" in finding.details
    assert "24 MB" in finding.details


@pytest.mark.parametrize(("size_bytes", "memory"), [(6_000_000, "pinned"), (60_000, "pageable")])
def test_pinned_and_small_copies_are_not_slow_for_their_memory(found_in, size_bytes, memory):
    assert "pageable_copies" not in found_in(pageable(size_bytes, memory))
