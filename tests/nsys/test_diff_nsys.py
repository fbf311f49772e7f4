"""trace_diff under a real `nsys recipe`: what a failed gate leaves."""

from __future__ import annotations

import json

import pytest
from results import read_report, under_nsys

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

GATES = ["--gate", "kernel_per_call(flash*):+3%", "--gate", "idle_pct:+2pp"]


def test_a_failed_gate_arrives_as_1_and_the_results_stay(nsys, traces, tmp_path):
    before, after = (traces / "h100_mfu" / f"{side}.sqlite" for side in ("before", "after"))
    words = ["--baseline", before, "--input", after, "--output", "out", *GATES]
    done = under_nsys(nsys, tmp_path, *words, recipe="trace_diff")
    assert done.returncode == 1
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text("utf-8"))
    assert (verdict["exit_code"], verdict["verdict"]) == (1, "fail")
    assert [gate["result"] for gate in verdict["gates"]] == ["pass", "fail"]
    assert read_report(tmp_path / "out")["exit_code"] == 1
    assert "gate failed: idle_pct:+2pp" in done.stdout
    record = json.loads((tmp_path / "out" / "out.nsys-analysis").read_text("utf-8"))
    assert record["Outputs"]["verdict.json"] == "Verdict"
    assert len(record["InputFiles"]) == 2
