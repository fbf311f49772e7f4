"""Findings about the run itself: each fires on what it is for, and not just below."""

from __future__ import annotations

import pytest
from planted import coverage, file, frame_of

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.run_findings import run_findings


def findings_of(files=(), rows=()):
    given = {"files": files, "capture": (), "coverage": rows, "wall": ()}
    return run_findings({name: frame_of(name, some) for name, some in given.items()})


def test_a_sound_run_has_no_findings():
    assert findings_of([file(0), file(1)], [coverage(0, 1000)]) == []


def test_a_rank_without_gpu_work_is_told():
    (finding,) = findings_of([file(0), file(1, "no_gpu_work", "no work")], [coverage(0, 1000)])
    assert (finding.rule, finding.kind) == ("no_gpu_work", CAPTURE)
    assert finding.title == "1 of 2 ranks or profiles holds no GPU work: `rank1`"
    assert "`rank1`" in finding.details
    (all_of_them,) = findings_of([file(0, "no_gpu_work", "no work")])
    assert all_of_them.kind == CAPTURE


@pytest.mark.parametrize("status", ["failed", "absent"])
def test_one_missing_rank_is_a_finding_that_names_it_and_its_reason(status):
    (finding,) = findings_of([file(0), file(3, status, "rank3: cut off; record again.")])
    assert (finding.rule, finding.severity, finding.scope) == ("missing_ranks", None, "run")
    assert finding.title.startswith("1 of 2 ranks or profiles ")
    assert "rank3" in finding.details
    assert finding.details.count("cut off; record again.") == 1
    assert "rank0" not in finding.details
    assert finding.tables == ("files",)


def test_of_many_missing_ranks_some_are_named_and_all_are_counted():
    files = [file(rank, "failed", f"rank{rank}: empty.") for rank in range(1023)]
    files.append(file(1023))
    (finding,) = findings_of(files)
    assert finding.title.startswith("1,023 of 1,024 ranks or profiles ")
    assert "rank4" in finding.details
    assert "rank5" not in finding.details
    # 1023 - 5.
    assert "1,018 more" in finding.details
    assert len(finding.details) < 1000


@pytest.mark.parametrize(("attributed_ns", "fires"), [(699, True), (700, False), (701, False)])
def test_low_coverage_begins_below_seventy_percent(attributed_ns, fires):
    findings = findings_of(rows=[coverage(0, attributed_ns)])
    assert [finding.rule for finding in findings] == ["low_api_coverage"] * fires


def test_what_was_launched_before_the_capture_is_no_part_of_low_coverage():
    assert findings_of(rows=[coverage(0, 100, api_cut_ns=900)]) == []
    assert findings_of(rows=[coverage(0, 0, api_cut_ns=1000)]) == []
    (finding,) = findings_of(rows=[coverage(0, 100, api_cut_ns=500)])
    assert "20.0 %" in finding.title
    assert finding.details.startswith(
        "100 ns of 500 ns (without 500 ns launched before the capture"
    )


def test_low_coverage_names_the_worst_rank_and_counts_the_others():
    rows = [coverage(0, 1000), coverage(1, 600), coverage(2, 50), coverage(10, 650)]
    (finding,) = findings_of(rows=rows)
    assert (finding.kind, finding.scope, finding.rank) == (CAPTURE, "rank", 2)
    # 50 of 1000 ns.
    assert "5.0 %" in finding.title
    assert "`rank2`" in finding.title
    assert finding.details.startswith("50 ns of 1 us. 3 of 4 ranks ")
