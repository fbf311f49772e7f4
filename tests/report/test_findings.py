"""Findings: their order, their table, and that none goes without evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsys_llm.core.errors import ManifestError
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.findings import Finding, finding_columns, ranked
from nsys_llm.report.outputs import declared_frame

ONE = Finding(
    rule="dominant_kernel",
    severity="high",
    scope="kernel",
    title="`gemm` takes 60 % of the kernel time",
    evidence="3 s of 5 s.",
    tables=("kernels", "devices"),
    recommendation="Look at its launches.",
    name="gemm",
    window_ns=(5, 9),
    impact_ns=3_000_000_000,
)


def test_findings_are_read_most_severe_first_then_by_time_then_by_rule_and_rank():
    note = replace(ONE, severity="note", impact_ns=9_000_000_000)
    small = replace(ONE, impact_ns=1)
    earlier = replace(ONE, rule="a_rule")
    on_rank = replace(ONE, rank=0)
    shuffled = [note, on_rank, small, ONE, earlier]
    assert ranked(shuffled) == [earlier, ONE, on_rank, small, note]
    assert ranked(reversed(shuffled)) == ranked(shuffled)


@pytest.mark.parametrize("field", ["title", "evidence", "tables", "recommendation"])
def test_a_finding_never_fires_without_evidence(field):
    with pytest.raises(ManifestError, match="dominant_kernel: a finding never fires without"):
        replace(ONE, **{field: () if field == "tables" else ""})


@pytest.mark.parametrize("field", ["severity", "scope"])
def test_a_finding_has_a_severity_and_a_scope_that_there_are(field):
    with pytest.raises(ManifestError, match="severity or scope"):
        replace(ONE, **{field: "other"})


@pytest.mark.parametrize("recipe", recipe_names())
def test_findings_become_the_declared_table(recipe):
    (table,) = (one for one in load_manifest(recipe).writes if one.file == "findings")
    frame = declared_frame(table, finding_columns([ONE, replace(ONE, window_ns=None)]))
    assert frame["tables"].tolist() == ["kernels, devices"] * 2
    assert frame["window_start_ns"].isna().tolist() == [False, True]
    assert frame["window_end_ns"].iloc[0] == 9
    assert len(declared_frame(table, finding_columns([]))) == 0
