"""Findings on copies: each fires on its case, with the numbers, and not without it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from results import tables_of
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_hotspots.findings.memops import copy_findings
from nsys_llm.report.causes import Cause
from nsys_llm.report.prices.pricing import priced


@pytest.fixture
def found_in(tmp_path):
    """Return a function that analyses ranks and returns their findings by rule."""

    def findings_of(*ranks):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        inputs = [
            trace.write_sqlite(folder / f"rank{number}.sqlite")
            for number, trace in enumerate(ranks)
        ]
        tables = tables_of(folder / "o", *inputs)
        findings = priced(copy_findings(tables), tables)
        assert len({(finding.rule, finding.name) for finding in findings}) == len(findings)
        return {finding.rule: finding for finding in findings}

    return findings_of


def busy(end_ns=1000):
    """Return a rank with a kernel from 0 to `end_ns`."""
    return TraceBuilder().kernel("k", start_ns=0, end_ns=end_ns)


@pytest.mark.parametrize(("copy_ns", "severity"), [(5, None), (20, "low"), (900, "medium")])
def test_copies_that_computation_could_hide_gain_as_much(found_in, copy_ns, severity):
    # 5, 20 and 900 ns of 1005 (0.5 %), 1020 (2.0 %) and 1900 (47 %), in all less than 0.1 ms.
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
def test_copies_that_bind_the_job_gain_what_overlaps_or_half_by_narrower_types(found_in):
    # 100 ns of kernels, 10 us of copies to the device and 3 us back.
    copies = busy(100).memcpy("HtoD", start_ns=100, end_ns=10_100, size_bytes=8)
    alone = found_in(copies)
    assert set(alone) == {"link_bound"}
    price = alone["link_bound"].price
    assert (price.about_ns, price.bound_ns) == (5_000, 10_000)
    assert alone["link_bound"].cause == Cause("copies", detail="HtoD")
    both = busy(9_000).memcpy("HtoD", start_ns=9_000, end_ns=19_000, size_bytes=8)
    both.memcpy("DtoH", start_ns=19_000, end_ns=28_000, size_bytes=8)
    price = found_in(both)["link_bound"].price
    # One way while the other runs: 9 us; half of all 19 us is more, and computation hides 9.
    assert (price.about_ns, price.bound_ns) == (9_500, 19_000)


@pytest.mark.slow
def test_a_copy_that_a_kernel_hides_gains_nothing(found_in):
    by_rule = found_in(busy().memcpy("HtoD", start_ns=0, end_ns=900, size_bytes=8))
    assert by_rule["exposed_copies"].severity is None


@pytest.mark.slow
def test_copies_inside_the_device_are_not_called_exposed(found_in):
    by_rule = found_in(busy().memcpy("DtoD", start_ns=1000, end_ns=1200, size_bytes=8))
    assert set(by_rule) == {"device_copies"}
    # 200 of 1200 ns.
    finding = by_rule["device_copies"]
    assert (finding.severity, finding.price.gain_ns) == ("medium", 200)
    assert finding.cause == Cause("copies", detail="DtoD")
    assert finding.title == "Copies inside the device: 16.7 %"
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


def test_large_pageable_copies_gain_half_of_their_time_pinned(found_in):
    finding = found_in(pageable(6_000_000))["pageable_copies"]
    # 4 of 5 ms, both ways in one finding, of which half is the largest that is sure.
    assert (finding.price.gain_ns, finding.price.span_ns) == (2_000_000, 5_000_000)
    assert finding.severity == "high"
    assert finding.title == "Copies of pageable memory: 80.0 %"
    assert "4 DtoH and HtoD copies" in finding.details
    assert "24 MB" in finding.details


@pytest.mark.parametrize(("size_bytes", "memory"), [(6_000_000, "pinned"), (60_000, "pageable")])
def test_pinned_and_small_copies_are_not_slow_for_their_memory(found_in, size_bytes, memory):
    assert "pageable_copies" not in found_in(pageable(size_bytes, memory))
