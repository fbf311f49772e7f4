"""What is known of Nsight Systems by version fits what we read, and a profile that lacks it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from command_line import run, snapshot
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.profile.capture import NEWEST_SCHEMA, OLDEST_SCHEMA
from nsys_llm.testing.trace_schema import ExportSchema, schema_versions

VERSIONS = schema_versions()
SCHEMAS = [ExportSchema.load(version) for version in VERSIONS]
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def facts(name: str) -> dict[str, Any]:
    return json.loads(
        resources.files("nsys_llm.profile").joinpath(f"data/{name}.json").read_text("utf-8")
    )


READ = facts("nsys_tables")


def two_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])


def test_versions_are_in_order_and_those_that_the_reader_knows():
    numbers = [tuple(map(int, version.split("."))) for version in VERSIONS]
    assert numbers == sorted(numbers)
    known = (two_numbers(VERSIONS[0]), two_numbers(VERSIONS[-1]))
    assert known == (OLDEST_SCHEMA, NEWEST_SCHEMA)


@pytest.mark.parametrize("table", READ)
def test_what_is_read_exists_and_what_some_versions_lack_is_optional(table):
    name, optional = READ[table]["nsys"], set(READ[table]["optional"])
    shapes = [{column.name for column in s.tables[name]} for s in SCHEMAS if name in s.tables]
    assert shapes, f"no version has {name}"
    for column, nsys_column in READ[table]["columns"].items():
        have = [nsys_column in shape for shape in shapes]
        assert any(have), f"no version has {name}.{nsys_column}"
        assert all(have) or column in optional, f"some version has no {name}.{nsys_column}"


def test_columns_that_cannot_be_trusted_are_read_by_nobody():
    read = {
        f"{entry['nsys']}.{column}"
        for entry in READ.values()
        for column in entry["columns"].values()
    }
    untrusted = facts("export_schema")["untrusted"]
    assert untrusted
    assert not read & untrusted.keys()
    for name in untrusted:
        table, column = name.split(".")
        assert all(
            column in {declared.name for declared in schema.tables[table]} for schema in SCHEMAS
        )


def test_a_reused_name_is_that_of_different_columns():
    for name in facts("export_schema")["reused"]:
        shapes = [{column.name for column in schema.tables[name]} for schema in SCHEMAS]
        assert shapes[0] - shapes[-1]
        assert shapes[-1] - shapes[0]


def real_exports(traces: Path) -> list[Path]:
    """Return all but one that does not say its version."""
    exports = [*traces.glob("h100_mfu*/**/*.sqlite"), *traces.glob("public/*.sqlite")]
    return sorted(path for path in exports if path.name != "tensorrt_rtx3090.sqlite")


def version_of(path: Path) -> str:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        query = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'"
        return database.execute(query).fetchone()[0]


@pytest.mark.traces
def test_versions_of_which_real_exports_are_tested_are_marked_so(traces):
    versions = set(map(version_of, real_exports(traces)))
    by_release = {schema.version for schema in SCHEMAS if "nsys" in schema.tested}
    real = {schema.version for schema in SCHEMAS if "exports" in schema.tested}
    assert versions - by_release == real


def columns_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the columns of each table of a database: name, type, whether NULL is excluded."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: [
                (column, kind, bool(filled))
                for _, column, kind, filled, *_ in database.execute(f'PRAGMA table_info("{name}")')
            ]
            for (name,) in names
        }


@pytest.mark.traces
def test_a_real_export_has_the_columns_that_are_written_for_its_version(traces):
    for path in real_exports(traces):
        exported, schema = columns_of(path), ExportSchema.load(version_of(path))
        for name in exported.keys() & schema.tables.keys():
            ours = [
                (column.name, column.sql_type, not column.nullable)
                for column in schema.tables[name]
            ]
            assert ours == exported[name], (path.name, name)


# A profile that is not usable -----------------------------------------------------------------

REQUIRED = [("llm_hotspots", VERSIONS[0]), ("trace_diff", "4.1.0")]


def written(path: Path, version: str) -> Path:
    """Write a kernel in a schema; one that is not known is the newest under another number."""
    known = version if version in VERSIONS else VERSIONS[-1]
    TraceBuilder(schema=known).kernel("k", start_ns=1, end_ns=3).write_sqlite(path)
    with closing(sqlite3.connect(path)) as database:
        query = "UPDATE META_DATA_EXPORT SET value = ? WHERE name = 'EXPORT_SCHEMA_VERSION'"
        database.execute(query, (version,))
        database.commit()
    return path


@pytest.mark.parametrize(("recipe", "version"), REQUIRED)
@pytest.mark.parametrize("change", ["RENAME COLUMN deviceId TO gpu", "DROP COLUMN demangledName"])
def test_a_needed_column_that_is_gone_is_named_in_one_line(tmp_path, recipe, version, change):
    path = written(tmp_path / "r.sqlite", version)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"ALTER TABLE {KERNELS} {change}")
        database.commit()
    before = snapshot(tmp_path)
    sides = [path, path] if load_manifest(recipe).sided else [path]
    ended = run("--input", *sides, "--output", tmp_path / "out", recipe=recipe)
    assert (ended.code, ended.printed) == (2, [])
    messages = [line for line in ended.errors if "r.sqlite" in line]
    assert len(messages) == len(sides)
    for line in messages:
        assert KERNELS in line
        assert change.split()[2] in line
    assert snapshot(tmp_path) == before
