"""Findings on ranks say what is known, and nothing in place of what is not."""

from __future__ import annotations

import pytest
from planted import file, frame_of

from nsys_llm.job.ranks.verdicts import EVIDENCE
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.rank_findings import RULES, STAGE_RULES, rank_findings


@pytest.mark.parametrize("verdict", [*RULES, *STAGE_RULES])
@pytest.mark.parametrize("more_pct", [None, 12.5])
@pytest.mark.parametrize("host", [None, "node1"])
def test_what_is_not_known_of_a_rank_is_left_out(verdict, more_pct, host):
    row = {"rank": 1, "stage": 1, "peers_n": 1024, "steps_n": 10, "late_ns": 2e6}
    row |= {"late_steps_n": 3, "less_steps_n": 9}
    tables = {
        "files": frame_of("files", [{**file(1), "host": host}]),
        "rank_verdicts": frame_of(
            "rank_verdicts", [{**row, "verdict": verdict, "more_pct": more_pct}]
        ),
    }
    (finding,) = rank_findings(tables, {**RULES, **STAGE_RULES})
    for text in (finding.title, finding.details):
        assert not {"-", "`-`"} & set(text.split()), text
        assert not {"[", "]"} & set(text), text
    assert ("node1" in finding.details) == bool(host and more_pct)
    assert ("12.5 %" in finding.details) == (more_pct is not None)
    beside_peers = more_pct is not None and verdict not in STAGE_RULES
    assert ("the median of its peers" in finding.details) == beside_peers


@pytest.mark.parametrize(("more_pct", "words"), [(12.5, "12.5 % more"), (-52.3, "52.3 % less")])
def test_compute_beside_peers_is_more_or_less(more_pct, words):
    (finding,) = _late(ranks=(1,), more_pct=more_pct)
    assert finding.details.startswith(f"{words} compute than the median of its peers")


def test_every_gpu_of_a_finding_is_named_or_counted():
    """Eight of twelve ranks are not the twelve."""
    (row,) = _late(ranks=range(3, 15), verdict="less_work")
    assert row.title.startswith("Ranks 3-14 have less to compute in ")
    (odd,) = _late(ranks=range(1, 24, 2), verdict="less_work")
    assert odd.title.startswith("12 ranks have less to compute in ")


def _late(ranks, verdict="late", **columns):
    row = {"verdict": verdict, "peers_n": 30, "steps_n": 10, "less_steps_n": 10, "late_ns": 2e6}
    rows = [{**row, "rank": rank, **columns} for rank in ranks]
    tables = {
        "files": frame_of("files", [file(rank) for rank in ranks]),
        "rank_verdicts": frame_of("rank_verdicts", rows),
    }
    return rank_findings(tables, RULES)


def test_every_verdict_has_evidence_in_tables_that_some_recipe_writes():
    written = {table.file for name in recipe_names() for table in load_manifest(name).writes}
    assert EVIDENCE.keys() == {*RULES, *STAGE_RULES}
    assert {table for tables in EVIDENCE.values() for table in tables} <= written
