"""Findings: their order, their table, and that none goes without evidence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nsys_llm.core.errors import ManifestError
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.findings import (
    CAPTURE,
    IMPROVEMENT,
    Evidence,
    Finding,
    cells,
    finding_columns,
    finding_record,
    ranked,
)
from nsys_llm.report.gains import Gain, gain_words
from nsys_llm.report.outputs import declared_frame

ONE = Finding(
    rule="dominant_kernel",
    severity="high",
    scope="kernel",
    title="`gemm` takes 60 % of the kernel time",
    details="3 s of 5 s.",
    tables=("kernels", "devices"),
    recommendation="Look at its launches.",
    name="gemm",
    window_ns=(5, 9),
    impact_ns=3_000_000_000,
)


def test_findings_are_read_most_severe_first_then_by_time_then_by_rule_and_rank():
    rare = replace(ONE, severity="tail", impact_ns=9_000_000_000)
    small = replace(ONE, impact_ns=1)
    earlier = replace(ONE, rule="a_rule")
    on_rank = replace(ONE, rank=0)
    shuffled = [rare, on_rank, small, ONE, earlier]
    assert ranked(shuffled) == [earlier, ONE, on_rank, small, rare]
    assert ranked(reversed(shuffled)) == ranked(shuffled)


@pytest.mark.parametrize("field", ["title", "details", "tables", "recommendation"])
def test_a_finding_never_fires_without_evidence(field):
    with pytest.raises(ManifestError, match="dominant_kernel: a finding never fires without"):
        replace(ONE, **{field: () if field == "tables" else ""})


@pytest.mark.parametrize("field", ["severity", "scope", "kind"])
def test_a_finding_has_a_severity_a_scope_and_a_kind_that_there_are(field):
    with pytest.raises(ManifestError, match=f"dominant_kernel: .*{field}"):
        replace(ONE, **{field: "other"})


def gain(gain_ns, **more):
    given = {"span_ns": 1_000, "wall_classes": ("idle",), "basis": "idle", "is_bound": False}
    return Gain(**{"gain_ns": gain_ns, **given, **more})


@pytest.mark.parametrize(
    ("gain_ns", "tail_pct", "severity"),
    [(100, None, "high"), (99, 50.0, "medium"), (30, None, "medium"), (29, None, "low"),
     (10, None, "low"), (9, 10.0, "tail"), (9, 9.9, None), (9, None, None), (0, 100.0, "tail")],
)  # fmt: skip
def test_the_severity_is_the_gain(gain_ns, tail_pct, severity):
    assert gain(gain_ns, tail_pct=tail_pct).severity == severity


@pytest.mark.parametrize("given", [{"gain_ns": 1_001}, {"gain_ns": -1}, {"wall_classes": ()}])
def test_no_gain_is_longer_than_its_span_or_draws_on_nothing(given):
    with pytest.raises(ManifestError):
        gain(**{"gain_ns": 1, **given})


def test_a_gain_says_whether_it_is_a_bound_and_what_it_is_of_a_step():
    assert gain_words(gain(300)) == "about 300 ns, 30.0 %"
    assert gain_words(gain(300, is_bound=True, steps_n=4)) == "at most 75 ns a step, 30.0 %"
    assert gain(300).gain_step_ns is None


def test_findings_are_ordered_by_what_they_gain_and_remarks_come_last():
    def made(gain_ns, **more):
        scale = gain(gain_ns)
        return replace(ONE, gain=scale, severity=scale.severity, **more)

    remark = replace(ONE, kind=CAPTURE, severity=None)
    won = replace(ONE, kind=IMPROVEMENT, severity=None)
    shuffled = [remark, made(120), won, made(9), made(40), made(500)]
    assert ranked(shuffled) == [made(500), made(120), made(40), won, remark]


def test_evidence_and_numbers_are_fields():
    evidence = cells("kernels", {"name": "gemm", "busy_ns": 3, "n": 1}, ["name"], ["busy_ns"])
    assert evidence == (Evidence("kernels", (("name", "gemm"),), "busy_ns", 3),)
    record = finding_record(replace(ONE, evidence=evidence, numbers={"share": 60.0}, gain=gain(5)))
    assert record["evidence"] == [
        {"table": "kernels", "where": {"name": "gemm"}, "column": "busy_ns", "value": 3}
    ]
    assert (record["numbers"], record["kernel"], record["gain_pct"]) == (
        {"share": 60.0},
        "gemm",
        0.5,
    )
    assert json.loads(json.dumps(record)) == record


@pytest.mark.parametrize("recipe", recipe_names())
def test_findings_become_the_declared_table(recipe):
    (table,) = (
        declared for declared in load_manifest(recipe).writes if declared.file == "findings"
    )
    names = [column.name for column in table.columns]
    frame = declared_frame(table, finding_columns([ONE, replace(ONE, window_ns=None)], names))
    assert frame["tables"].tolist() == ["kernels, devices"] * 2
    assert frame["window_start_ns"].isna().tolist() == [False, True]
    assert frame["window_end_ns"].iloc[0] == 9
    assert len(declared_frame(table, finding_columns([], names))) == 0
