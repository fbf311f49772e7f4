"""Findings: their order, their table, and that none goes without evidence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nsys_llm.core.errors import ManifestError
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import (
    CAPTURE,
    IMPROVEMENT,
    Evidence,
    Finding,
    cells,
    finding_record,
    finding_row,
    ranked,
)
from nsys_llm.report.outputs import declared_frame, declared_rows
from nsys_llm.report.price import Price, price_of, price_words

ONE = Finding(
    rule="dominant_kernel",
    scope="kernel",
    title="`gemm` takes 60 % of the kernel time",
    details="3 s of 5 s.",
    tables=("kernels", "devices"),
    recommendation="Look at its launches.",
    name="gemm",
    window_ns=(5, 9),
    impact_ns=3_000_000_000,
)


@pytest.mark.parametrize("field", ["title", "details", "tables", "recommendation"])
def test_a_finding_never_fires_without_evidence(field):
    with pytest.raises(ManifestError, match="dominant_kernel: a finding never fires without"):
        replace(ONE, **{field: () if field == "tables" else ""})


@pytest.mark.parametrize("field", ["scope", "kind"])
def test_a_finding_has_a_scope_and_a_kind_that_there_are(field):
    with pytest.raises(ManifestError, match=f"dominant_kernel: .*{field}"):
        replace(ONE, **{field: "other"})


def price(about_ns=None, bound_ns=None, **more):
    basis = None if about_ns is None else "usual"
    given = {"span_ns": 1_000, "wall_classes": ("idle",), "about_basis": basis}
    return Price(**{"about_ns": about_ns, "bound_ns": bound_ns, **given, **more})


@pytest.mark.parametrize(
    ("about_ns", "bound_ns", "tail_pct", "severity"),
    [
        *((100, None, None, "high"), (99, 500, 50.0, "medium"), (30, 30, None, "medium")),
        *((29, None, None, "low"), (10, None, None, "low"), (9, None, 10.0, "tail")),
        *((9, 900, 9.9, None), (9, None, None, None), (0, None, 100.0, "tail")),
        *((None, 500, None, "medium"), (None, 30, None, "medium"), (None, 29, None, "low")),
        *((None, 9, None, None), (None, None, None, None)),
    ],
)
def test_the_severity_is_the_estimate_and_of_a_bound_never_above_medium(
    about_ns, bound_ns, tail_pct, severity
):
    times = [None if time_ns is None else 1_000 * time_ns for time_ns in (about_ns, bound_ns)]
    assert price(*times, tail_pct=tail_pct, span_ns=1_000_000).severity == severity


def test_what_gains_less_than_a_tenth_of_a_millisecond_is_never_high():
    assert price(100_000, span_ns=200_000).severity == "high"
    assert price(99_999, span_ns=100_000).severity == "medium"


def test_what_a_replay_refutes_is_not_listed_however_large_its_bound():
    refuted = price(9, 900, about_basis="replay", tail_pct=50.0)
    assert (refuted.is_refuted, refuted.severity) == (True, None)
    assert not price(10, 900, about_basis="replay").is_refuted
    assert not price(9, 900).is_refuted


@pytest.mark.parametrize(
    "given",
    [
        *({"about_ns": 1_001}, {"bound_ns": 1_001}, {"about_ns": -1}, {"wall_classes": ()}),
        *({"about_ns": 5, "bound_ns": 4}, {"about_ns": 5, "about_basis": None}),
    ],
)
def test_no_price_is_above_its_bound_or_span_or_rests_on_nothing(given):
    with pytest.raises(ManifestError):
        price(**given)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (price(300), "about 300 ns, 30.0 %"),
        (price(300, 300), "about 300 ns, 30.0 %"),
        (price(300, 400), "about 300 ns, 30.0 % (at most 40.0 %)"),
        (price(None, 300, steps_n=4), "at most 75 ns a step, 30.0 %"),
        (price(measured_ns=300, steps_n=4), "how much it gains is not known"),
    ],
)
def test_a_price_says_how_sure_it_is_in_findings_and_in_rows_of_their_table(made, words):
    assert price_words(made) == words
    assert price_words(price_of(finding_row(replace(ONE, price=made)))) == words


def test_an_estimate_counts_whole_and_a_bound_or_what_is_measured_half_and_what_is_rare_last():
    def made(about_ns, bound_ns=None, **more):
        return replace(ONE, price=price(about_ns, bound_ns, **more))

    remark = replace(ONE, kind=CAPTURE)
    won = replace(ONE, kind=IMPROVEMENT)
    rare = made(9, 900, tail_pct=60.0)
    ordered = [
        *(made(500), made(None, 900), made(120, 700), made(120, 600)),
        *(replace(made(120), rule="a_rule"), made(120), made(None, None, measured_ns=200)),
        *(made(None, 100), made(40), rare, won, remark),
    ]
    assert ranked(reversed([*ordered, made(9), made(None, None)])) == ordered


def test_evidence_and_numbers_are_fields():
    evidence = cells("kernels", {"name": "gemm", "busy_ns": 3, "n": 1}, ["name"], ["busy_ns"])
    assert evidence == (Evidence("kernels", (("name", "gemm"),), "busy_ns", 3),)
    record = finding_record(
        replace(ONE, evidence=evidence, numbers={"share": 60.0}, price=price(5))
    )
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
    rows = declared_rows(table, map(finding_row, [ONE, replace(ONE, window_ns=None)]))
    frame = declared_frame(table, rows)
    assert frame["tables"].tolist() == ["kernels, devices"] * 2
    assert frame["window_start_ns"].isna().tolist() == [False, True]
    assert frame["window_end_ns"].iloc[0] == 9
    assert len(declared_frame(table, [])) == 0


def test_a_rank_is_one_cause_whether_or_not_its_kernel_is_known():
    named, unnamed = Cause("rank", rank=2, note="more_work"), Cause("rank", rank=2)
    assert len({named, unnamed}) == 1
    assert unnamed != Cause("rank", rank=3)
    assert Cause("host", rank=1) != Cause("host")
    assert Cause("wait", detail="cudaMemcpy") != Cause("wait", detail="cudaFree")
