"""Tables that are named like known ones, and payloads in another form, are said and not missed."""

import sqlite3

import pytest
from quick_run import quick_run
from trace_builder import TraceBuilder

from nsys_llm.report.building import finished
from nsys_llm.report.capture_summary import unrecorded

US = 1_000


def export(path, *statements):
    trace = TraceBuilder().kernel("gemm", start_ns=9 * US, duration_ns=US, launch=(US, 2 * US))
    trace.nvtx("step", US, 8 * US).write_sqlite(path)
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)
    return path


def said(path):
    results = finished(quick_run("nvtx_phase_attribution", path))
    findings = {finding.rule: finding for finding in results.report.findings}
    return findings.get("unknown_table"), results


@pytest.mark.parametrize(
    ("statements", "named"),
    [
        (["ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_V2"], "`NVTX_EVENTS_V2`"),
        (["CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL2 (start)"], "`CUPTI_ACTIVITY_KIND_KERNEL2`"),
        (["CREATE TABLE NVTX_PAYLOAD_NCCL (eventId, size)"], "`NVTX_PAYLOAD_NCCL`"),
        (
            [
                "CREATE TABLE IF NOT EXISTS NVTX_PAYLOAD_SCHEMAS (domainId, schemaId)",
                "ALTER TABLE NVTX_EVENTS DROP COLUMN binaryData",
            ],
            "`NVTX_EVENTS without binaryData`",
        ),
    ],
)
def test_what_is_there_in_another_form_is_named(tmp_path, statements, named):
    finding, results = said(export(tmp_path / "rank0.sqlite", *statements))
    assert finding.title == "1 table of the export has an unknown form"
    assert named in finding.details
    assert results.tables["capture"]["limits"].tolist() == [True]


def test_ranges_of_another_form_are_not_missing(tmp_path):
    path = export(tmp_path / "rank0.sqlite", "ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_V2")
    _, results = said(path)
    assert not any("nvtx" in item.record for item in unrecorded(results.run))
    without = export(tmp_path / "rank1.sqlite", "DROP TABLE NVTX_EVENTS")
    assert any("nvtx" in item.record for item in unrecorded(said(without)[1].run))


def test_tables_that_are_known_say_nothing(tmp_path):
    statements = ["CREATE TABLE NVTX_PAYLOAD_ENUMS (id)", "CREATE TABLE CUDNN_EVENTS_V2 (id)"]
    finding, results = said(export(tmp_path / "rank0.sqlite", *statements))
    assert finding is None
    assert results.tables["capture"].empty
