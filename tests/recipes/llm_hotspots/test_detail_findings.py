"""Findings of the details: each fires on what it is about, says where, and never without it."""

from __future__ import annotations

from results import tables_of
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_hotspots.findings.extras import measured_findings
from nsys_llm.recipes.llm_hotspots.findings.kernels import determinism_findings
from nsys_llm.report.prices.pricing import priced

GB = 1 << 30
GEMM = "nvjet_tst_192x192"


def findings_by_rule(folder, *traces, options=()):
    ranks = folder / "ranks"
    ranks.mkdir()
    for rank, trace in enumerate(traces):
        trace.write_sqlite(ranks / f"rank{rank}.sqlite")
    tables = tables_of(folder / "out", ranks, options=options)
    topics = (measured_findings, determinism_findings)
    findings = priced([finding for topic in topics for finding in topic(tables)], tables)
    assert len({finding.rule for finding in findings}) == len(findings)
    return {finding.rule: finding for finding in findings}


def busy(until_ns=4_000_000):
    trace = TraceBuilder(gpu_name="NVIDIA H100 80GB HBM3").kernel("k", start_ns=0, duration_ns=4)
    return trace.kernel("k", start_ns=until_ns - 4, duration_ns=4)


def test_a_gpu_that_is_nearly_full_is_named_with_who_filled_it(tmp_path):
    full = busy().allocate(78 * GB, address=1, at_ns=2_000_000, call=(1, 2))
    less = busy().allocate(77 * GB, address=1, at_ns=2_000_000)
    enough = busy().allocate(75 * GB, address=1, at_ns=1)
    finding = findings_by_rule(tmp_path, less, full, enough)["memory_near_full"]
    assert (finding.rank, finding.device_id, finding.kind, finding.severity) == (
        1,
        0,
        "capture",
        None,
    )
    assert finding.ranks == (0, 1)
    # 78 of 80 GiB are 97.5 %, 77 are 96.25 %.
    assert finding.title == "Rank 1 fills 97.5 % of its GPU's memory"
    assert "83.8 GB of 85.9 GB allocated. That leaves 2.15 GB" in finding.details
    assert "83.8 GB of it came from `cudaMalloc`." in finding.details
    assert "1 other rank affected; rank 1 is the worst." in finding.details
    assert finding.window_ns == (1_000_000, 3_000_000)


def growing(*sizes, until_ns=4_000_000):
    """Return a trace that allocates once in the middle of each quarter."""
    trace = busy(until_ns)
    for quarter, size in enumerate(sizes):
        at_ns = (2 * quarter + 1) * until_ns // 8
        if size:
            trace.allocate(size, address=quarter, at_ns=at_ns, call=(at_ns - 2, at_ns - 1))
    return trace


def test_memory_that_grows_in_every_quarter_is_told(tmp_path):
    finding = findings_by_rule(tmp_path, growing(GB, GB, GB, GB), busy())["memory_growth"]
    assert (finding.rank, finding.kind, finding.window_ns) == (0, "capture", (0, 4_000_000))
    assert (
        "1.07 GB, 2.15 GB, 3.22 GB, 4.29 GB (device memory). In all 3.22 GB more" in finding.details
    )
    assert "`cudaMalloc`" in finding.details
    assert "--cudabacktrace=memory" in finding.record


def test_memory_that_stays_or_hardly_grows_is_not(tmp_path):
    ranks = [
        (GB, GB, 0, GB),  # still in one quarter
        (GB, 0, 0, 0),
        (GB, 1 << 20, 1 << 20, 1 << 20),  # a few MiB
        (70 * GB, 1 << 28, 1 << 28, 1 << 28),  # 0.75 of 70 GiB: 1.1 %
    ]
    assert findings_by_rule(tmp_path, *(growing(*sizes) for sizes in ranks)) == {}


def test_kernels_whose_results_may_differ_are_named_by_flag(tmp_path):
    trace = TraceBuilder().kernel("nvjet_tst_1x1_splitK_TNT", start_ns=0, duration_ns=3)
    trace.kernel(GEMM, start_ns=10, duration_ns=5).kernel("k", start_ns=20, duration_ns=2)
    (split,) = findings_by_rule(tmp_path, trace).values()
    assert (split.rule, split.kind, split.impact_ns) == ("determinism_split_k", "capture", 3)
    assert "1 kernel, 1 launch, 30.0 % of kernel time" in split.details  # 3 of 10 ns
    assert "`nvjet_tst_1x1_splitK_TNT` (3 ns)" in split.details
