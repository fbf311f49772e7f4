"""The link between host and device: named where it bounds the job or is below its rate."""

from __future__ import annotations

import numpy as np
import pytest
from finding_numbers import unexplained_numbers
from quick_run import quick

from nsys_llm.recipes.llm_hotspots.findings.links import link_findings
from nsys_llm.report.findings import finding_record
from nsys_llm.testing.trace_builder import TraceBuilder

MS = 1_000_000
MB = 1_000_000


def findings_by_key(folder, *copies, compute_ns=MS, memory="pinned"):
    """Return the findings by rule; a copy is kind, start, length in ms and size in MB."""
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=compute_ns)
    for kind, start, length, size in copies:
        there = {"src_memory": memory} if kind == "HtoD" else {"dst_memory": memory}
        trace.memcpy(
            kind,
            start_ns=compute_ns + round(start * MS),
            duration_ns=round(length * MS),
            size_bytes=round(size * MB),
            **there,
        )
    trace.write_sqlite(folder / "rank0.sqlite")
    findings = link_findings(quick("llm_hotspots", folder))
    for finding in findings:
        assert unexplained_numbers(finding_record(finding)) == []
    return {(finding.rule, finding.name): finding for finding in findings}


def test_copies_that_nothing_can_hide_bound_the_job(tmp_path):
    # 1 ms of kernels; 40 ms to the device and 20 ms back, 10 of them at the same time.
    copies = [("HtoD", 10 * nth, 10, 200) for nth in range(4)]
    finding = findings_by_key(tmp_path, *copies, ("DtoH", 30, 20, 300))["link_bound", "link"]
    assert (finding.gain.gain_ns, finding.gain.span_ns, finding.gain.is_bound) == (
        50 * MS,
        51 * MS,
        True,
    )
    assert finding.title == "Bound by copies: 1.1 GB in 50 ms (rank 0)"
    assert "4 HtoD copies (pinned to device, 800 MB at 20 GB/s) take 40 ms" in finding.details
    assert "computes for 1 ms, and overlapping copies with that gains no more" in finding.details


@pytest.mark.parametrize(("compute_ms", "fires"), [(9, True), (11, False)])
def test_where_computation_could_hide_the_copies_overlap_is_the_advice(tmp_path, compute_ms, fires):
    rules = findings_by_key(tmp_path, ("HtoD", 0, 10, 200), compute_ns=compute_ms * MS)
    assert (("link_bound", "link") in rules) == fires


def test_copies_inside_the_device_do_not_load_the_link(tmp_path):
    assert findings_by_key(tmp_path, ("DtoD", 0, 50, 900)) == {}


def test_copies_below_the_best_rate_gain_what_that_rate_would_save(tmp_path):
    # The fastest has 25 GB/s, the others 10: 2 of 5 ms would do, nine times.
    copies = [("HtoD", 10 * nth, 5, 50) for nth in range(9)]
    finding = findings_by_key(tmp_path, *copies, ("HtoD", 90, 2, 50))["slow_copies", "HtoD"]
    assert finding.gain.gain_ns == pytest.approx(9 * 3 * MS)
    assert finding.gain.is_bound
    # 500 MB in 47 ms.
    assert finding.title == "HtoD copies at 10.6 GB/s, 25 GB/s seen (rank 0)"
    assert "The fastest HtoD copy of the run has 25 GB/s" in finding.details


@pytest.mark.parametrize(
    "innocent",
    [
        # Single copies differ by a few percent.
        [("HtoD", 10 * nth, 5 + 0.4 * (nth % 2), 50) for nth in range(10)],
        # Small copies are not slow for the link.
        [("HtoD", 10 * nth, 5, 0.5) for nth in range(10)] + [("HtoD", 110, 2, 50)],
        # Two at a time share the link, which is full.
        [("HtoD", 10 * (nth // 2), 4, 50) for nth in range(10)] + [("HtoD", 60, 2, 50)],
        # The other direction may be faster.
        [("DtoH", 10 * nth, 5, 50) for nth in range(9)] + [("HtoD", 90, 2, 50)],
    ],
)
def test_copies_at_the_rate_of_the_link_are_not_slow(tmp_path, innocent):
    rules = findings_by_key(tmp_path, *innocent, compute_ns=500 * MS)
    assert not [rule for rule, _ in rules if rule == "slow_copies"]


def test_pageable_copies_are_not_slow_for_the_link(tmp_path):
    copies = [("HtoD", 10 * nth, 5, 50) for nth in range(9)]
    rules = findings_by_key(tmp_path, *copies, ("HtoD", 90, 2, 50), memory="pageable")
    assert ("slow_copies", "HtoD") not in rules


def test_beside_the_other_direction_faster_copies_gain_only_what_that_leaves(tmp_path):
    # Back takes 40 ms all the while; copies there could be twice as fast, from 0 to 40 ms.
    back = [("DtoH", 0, 40, 800)]
    there = [("HtoD", 4 * nth, 4, 50) for nth in range(10)] + [("HtoD", 50, 2, 50)]
    finding = findings_by_key(tmp_path, *back, *there)["slow_copies", "HtoD"]
    # What is left of 42 ms of copies is 40 ms of the other direction.
    assert finding.gain.gain_ns == 2 * MS


@pytest.mark.parametrize("seed", range(20))
def test_the_fastest_copy_is_that_of_a_plain_search(tmp_path, seed):
    random = np.random.default_rng(seed)
    trace, rates = TraceBuilder().kernel("k", start_ns=0, end_ns=MS), {}
    for nth in range(30):
        kind = ("HtoD", "DtoH", "DtoD")[int(random.integers(3))]
        size, length = int(random.integers(1, 3 << 20)), int(random.integers(1, MS))
        trace.memcpy(kind, start_ns=(nth + 1) * MS, duration_ns=length, size_bytes=size)
        if size >= 1 << 20:
            rates.setdefault(kind, []).append(size / length)
    trace.write_sqlite(tmp_path / "t.sqlite")
    memops = quick("llm_hotspots", tmp_path)["memops"]
    fastest = {
        row.kind: row.fastest_gb_s for row in memops.dropna(subset="fastest_gb_s").itertuples()
    }
    assert fastest == {kind: max(some) for kind, some in rates.items()}
