"""report.json: every key of it stands in the schema of manifests/common.json, with its meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import run
from effort import nightly_but
from quick_run import quick
from results import demo_inputs, read_report
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.findings import KINDS, SCOPES, SEVERITIES
from nsys_llm.report.run_record import FORMAT
from nsys_llm.view.results import Results

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "manifests" / "common.json").read_text("utf-8"))["report"]


def checked(record):
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    return record


def parts_of(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        for name, part in schema.get("properties", {}).items():
            yield f"{path}/{name}", part
            yield from parts_of(part, f"{path}/{name}")
        for key in ("items", "additionalProperties"):
            yield from parts_of(schema.get(key), path)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["format"]["const"] == FORMAT
    finding = SCHEMA["properties"]["report"]["properties"]["findings"]["items"]["properties"]
    assert finding["severity"]["enum"] == [*SEVERITIES, None]
    assert finding["scope"]["enum"] == list(SCOPES)
    assert finding["kind"]["enum"] == list(KINDS)


def test_every_key_says_what_it_means():
    parts = dict(parts_of(SCHEMA))
    assert len(parts) > 40
    assert [
        path for path, part in parts.items() if not part.get("description", "").endswith(".")
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("recipe", nightly_but(recipe_names(), ["idle_gaps"]))
def test_the_record_of_a_real_run_follows_the_schema(shared_runs, recipe):
    ended, out = shared_runs.run("demo", recipe)
    assert ended.code == 0
    record = checked(read_report(out))
    assert record["report"]["title"] == load_manifest(recipe).title
    # The small demo set has even groups, and too few steps for a verdict.
    assert record["report"]["findings"] or recipe in ("comm_stats", "trace_diff")
    files = {path.stem for path in out.glob("*.parquet")}
    assert {name for name, table in record["tables"].items() if table["rows"]} == files
    results = Results(out)
    drawn = quick(recipe, *demo_inputs(shared_runs.ranks("demo"), recipe))
    for name, table in record["tables"].items():
        frame = results.table(name)
        assert len(frame) == table["rows"]
        assert (table["reason"] is None) == (table["rows"] > 0) == (results.why_empty(name) is None)
        if not table["rows"]:
            named = [*drawn[name].columns, drawn[name].index.name]
            assert set(frame.columns) == {column for column in named if column}


@pytest.mark.slow
def test_an_empty_table_says_why(shared_runs):
    _, out = shared_runs.run("demo", "llm_hotspots")
    tables = read_report(out)["tables"]
    assert tables["kernels"]["reason"] is tables["kernels"]["record"] is None
    assert tables["bandwidth"]["reason"] == "--weights was not given"
    assert "not recorded, or none happened" in tables["gpu_metrics"]["reason"]
    assert tables["gpu_metrics"]["record"] == "--gpu-metrics-devices=all"


@pytest.mark.slow
def test_so_does_that_of_a_run_with_broken_empty_and_absent_ranks(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    TraceBuilder().kernel("k", start_ns=0, duration_ns=5).write_sqlite(folder / "rank0.sqlite")
    TraceBuilder().api("cudaGetDevice_v3020", start_ns=1, end_ns=3, correlation_id=1).write_sqlite(
        folder / "rank1.sqlite"
    )
    (folder / "rank2.sqlite").write_bytes(b"no database")
    words = ["--mode", "none", "--world-size", "5", "--filter-time", "0/9", "--csv"]
    assert run(*words, "--output", tmp_path / "out", "--input", folder).code == 3
    record = checked(read_report(tmp_path / "out"))
    assert record["exit_code"] == 3
    assert list(record["failed"]) == ["rank2"]
