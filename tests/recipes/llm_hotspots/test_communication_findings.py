"""Findings on exposed communication, and on bandwidth."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from results import tables_of
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_hotspots.findings.communication import communication_findings
from nsys_llm.recipes.llm_hotspots.findings.kernels import bandwidth_findings
from nsys_llm.report.prices.pricing import priced

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.fixture
def found_in(tmp_path):
    """Return a function that analyses ranks, each a list of (name, start, end), for findings."""

    def findings_of(*ranks):
        inputs, folder = [], Path(tempfile.mkdtemp(dir=tmp_path))
        for number, kernels in enumerate(ranks):
            trace = TraceBuilder()
            for name, start, end in kernels:
                trace.kernel(name, start_ns=start, end_ns=end)
            inputs.append(trace.write_sqlite(folder / f"rank{number}.sqlite"))
        tables = tables_of(folder / "o", *inputs)
        return priced(communication_findings(tables), tables)

    return findings_of


@pytest.mark.parametrize(("wait_ns", "severity"), [(5, None), (60, "low"), (600, "medium")])
def test_communication_beside_no_computation_is_exposed(found_in, wait_ns, severity):
    # 5, 60 and 600 ns of 1005 (0.5 %), 1060 (5.7 %) and 1600 (38 %), and half; so little time is
    # never high.
    (finding,) = found_in([("k", 0, 1000), (NCCL, 900, 1000 + wait_ns)])
    assert (finding.rule, finding.severity) == ("exposed_communication", severity)
    assert (finding.rank, finding.device_id, finding.price.bound_ns) == (0, 0, wait_ns)
    assert finding.price.about_ns == pytest.approx(wait_ns / 2, abs=1)
    assert finding.window_ns == (1000, 1000 + wait_ns)


def test_communication_that_computation_hides_is_no_finding(found_in):
    assert found_in([("k", 0, 1000), (NCCL, 100, 900)]) == []


def test_bandwidth_that_leaves_room_is_told(tmp_path):
    trace = TraceBuilder()
    for nth, name in enumerate(["near", "far", "cached"]):
        trace.kernel(name, start_ns=100_000 * nth, duration_ns=10_000)
    trace.write_sqlite(tmp_path / "t.sqlite")
    # Of 3350 GB/s: 90 %, 50 %, 120 %.
    weights = {"near": 30_150_000, "far": 16_750_000, "cached": 40_200_000, "absent": 5}
    (tmp_path / "w.json").write_text(json.dumps(weights))
    options = ["--weights", str(tmp_path / "w.json")]
    tables = tables_of(tmp_path / "o", tmp_path / "t.sqlite", options=options)
    (room,) = priced([*bandwidth_findings(tables)], tables)
    assert (room.rule, room.kind, room.severity, room.name) == (
        "bandwidth_room",
        "performance",
        "low",
        "far",
    )
    # At 80 % it would take 50/80 of its 10 us, of 210.
    assert (room.price.gain_ns, room.price.span_ns) == (10_000 * 3 // 8, 210_000)
    assert ": 1,675 GB/s of 3,350 GB/s" in room.details
