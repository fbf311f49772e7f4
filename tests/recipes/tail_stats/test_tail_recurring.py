"""What recurs or comes first: bursts of every step are one finding, first launches have theirs."""

from __future__ import annotations

import numpy as np
import pytest
from quick_run import quick
from trace_builder import TraceBuilder

LAUNCH_NS, GAP_NS = 10_000, 30_000


def write(folder, rank, durations_ns):
    """Write a rank that launches one kernel every 30 us."""
    start_ns = 1_000_000 + GAP_NS * np.arange(durations_ns.size)
    trace = TraceBuilder(hostname="node", system_clock_ns=7)
    trace.kernels(["k"], [0] * durations_ns.size, start_ns=start_ns, end_ns=start_ns + durations_ns)
    trace.write_sqlite(folder / f"rank{rank}.sqlite")


def bursts(folder, seed, at, launches_n=60):
    """Write three ranks; on rank 1, launches take 2.8 times as long from each place on."""
    rng = np.random.default_rng(seed)
    for rank in range(3):
        durations_ns = rng.integers(9_900, 10_100, 5_000)
        for first in at if rank == 1 else []:
            durations_ns[first : first + 2 * launches_n : 2] = 28_000 + rng.integers(500, 900)
        write(folder, rank, durations_ns)
    tables = quick("tail_stats", folder, "--top", "1000")
    findings = tables["findings"]
    return tables["outlier_clusters"], findings[findings["kind"] == "performance"]


@pytest.mark.slow
def test_bursts_of_every_step_are_one_finding(tmp_path):
    table, findings = bursts(tmp_path, 0, range(300, 5_000, 800))
    assert len(table) == 6
    assert len(findings) == 1
    finding = findings.iloc[0]
    assert (finding["rank"], finding["title"]) == (
        1,
        "6 bursts of launches over twice their median on rank 1, one every 24 ms",
    )
    assert finding["gain_ns"] == table["device_excess_ns"].sum() == table["excess_ns"].sum()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_first_launches_are_compared_with_later_ones_and_are_no_tail(seed, tmp_path):
    rng = np.random.default_rng(seed)
    first_ns = rng.integers(300_000, 500_000, 4)
    for rank, one_ns in enumerate(first_ns.tolist()):
        # Two launches a rank: the median of all is in the middle of first and later ones.
        trace = TraceBuilder(hostname="node")
        trace.kernel("k", start_ns=1_000, duration_ns=one_ns)
        trace.kernel("k", start_ns=1_000_000, duration_ns=LAUNCH_NS)
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    tables = quick("tail_stats", tmp_path)
    assert set(tables["findings"]["kind"]) <= {"capture"}
