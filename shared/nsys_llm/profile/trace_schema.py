"""What is known of Nsight Systems by version: tables and columns of its exports, and its recipes.

From `data/export_schema.json`; for writing synthetic profiles, not for reading real ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from nsys_llm.core.errors import UsageError

Cell = int | float | str | None

_COLUMN_SPEC: Final = re.compile(
    r"(?P<sql>INTEGER|REAL|TEXT)(?P<filled> NOT NULL)?(?P<key> PRIMARY KEY)? (?P<arrow>\w+)"
    r"(?: since (?P<since>[\d.]+))?(?: until (?P<until>[\d.]+))?"
)


@dataclass(frozen=True)
class ExportColumn:
    """One column of an exported table.

    Attributes:
        sql_type: INTEGER, REAL or TEXT.
        arrow_type: Type in a parquet export, as arrow prints it.
        nullable: Whether a real export may hold NULL there.
        primary_key: Whether SQLite declares it so.
    """

    name: str
    sql_type: str
    arrow_type: str
    nullable: bool
    primary_key: bool

    def missing(self) -> Cell:
        """Return what a row holds that leaves this column out: NULL, or zero where NOT NULL."""
        if self.nullable:
            return None
        return "" if self.sql_type == "TEXT" else 0


@dataclass(frozen=True)
class ExportSchema:
    """The tables of one schema version.

    Attributes:
        version: Like `3.25.0`.
        product_version: Of the Nsight Systems that writes this schema.
        product_date: Release, like `2026.2`.
        tested: What it is tested with: `nsys` (the release itself), `exports` (real ones),
            `generated` (ours).
        capture_prefix: What the names of capture options begin with.
        no_green_context: The greenContextId of work in no green context.
        buffer_flush: How the profiler's buffer flush is named.
        sync_codes: The syncType that real exports hold by API call, as far as it was seen.
        tables: Columns per table, in their order.
        enums: Name and label per code, for each lookup table.
        sqlite_only: Tables that parquet exports leave out.
        gpus: Properties (columns of TARGET_INFO_GPU) of some GPU models by name.
    """

    version: str
    product_version: str
    product_date: str
    known_from: str
    tested: tuple[str, ...]
    capture_prefix: str
    no_green_context: int | None
    buffer_flush: str
    sync_codes: Mapping[str, int]
    tables: Mapping[str, tuple[ExportColumn, ...]]
    enums: Mapping[str, Sequence[tuple[str, str]]]
    sqlite_only: frozenset[str]
    gpus: Mapping[str, Mapping[str, Cell]]

    @classmethod
    @cache
    def load(cls, version: str) -> ExportSchema:
        """Return the tables of a schema version.

        Raises:
            UsageError: The version is none of those in `data/export_schema.json`.
        """
        facts = _schema_facts()
        if version not in facts["versions"]:
            known = ", ".join(facts["versions"])
            raise UsageError(f"schema version {version} is not one that can be written: {known}.")
        version_facts = facts["versions"][version]
        present = {
            name: table
            for name, table in facts["tables"].items()
            if _numbers(table.get("since", "0")) <= _numbers(version)
        }
        return cls(
            version=version,
            product_version=version_facts["product"],
            product_date=version_facts["release"],
            known_from=version_facts["known_from"],
            tested=tuple(version_facts["tested"]),
            capture_prefix=version_facts["capture_prefix"],
            no_green_context=version_facts["no_green_context"],
            buffer_flush=version_facts["buffer_flush"],
            sync_codes=version_facts["sync_codes"],
            tables={name: _columns(table["columns"], version) for name, table in present.items()},
            enums={
                name: [(symbol, label) for symbol, label in rows]
                for name, rows in facts["enums"].items()
            },
            sqlite_only=frozenset(
                name for name, table in present.items() if not table.get("parquet", True)
            ),
            gpus=facts["gpus"],
        )


@dataclass(frozen=True)
class Framework:
    """A release of the framework under `nsys recipe`.

    Attributes:
        release: Like `2024.6`.
        tested: `nsys` (the release itself) or `stand-in` (one of ours, after its documents).
        covers: The releases of Nsight Systems that it is tested for.
    """

    release: str
    tested: str
    covers: tuple[str, ...]


def schema_versions() -> tuple[str, ...]:
    """Return the schema versions that can be written, oldest first."""
    return tuple(_schema_facts()["versions"])


def frameworks() -> tuple[Framework, ...]:
    """Return the releases of the framework that are tested, oldest first."""
    return tuple(
        Framework(release, facts["tested"], tuple(facts["covers"]))
        for release, facts in _schema_facts()["frameworks"].items()
    )


@cache
def _schema_facts() -> dict[str, Any]:
    text = (
        resources.files("nsys_llm.profile").joinpath("data/export_schema.json").read_text("utf-8")
    )
    facts: dict[str, Any] = json.loads(text)
    return facts


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _columns(specs: Mapping[str, str], version: str) -> tuple[ExportColumn, ...]:
    columns = []
    for name, spec in specs.items():
        parts = _COLUMN_SPEC.fullmatch(spec)
        if parts is None:
            raise ValueError(f"export_schema.json: '{spec}' does not describe column {name}.")
        first, last = parts["since"] or version, parts["until"] or version
        if _numbers(first) <= _numbers(version) <= _numbers(last):
            not_null, key = bool(parts["filled"]), bool(parts["key"])
            columns.append(ExportColumn(name, parts["sql"], parts["arrow"], not not_null, key))
    return tuple(columns)
