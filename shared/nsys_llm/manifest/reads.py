"""What a recipe reads of an export, as its manifest has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TableRead:
    """One table of an export that a recipe reads, in our names (see `nsys_llm.profile.tables`).

    Attributes:
        columns: Columns that are always read.
        columns_with: Further columns, by the option that needs them.
        references: Further columns, by a table that stands before this one and has rows that they
            refer to.
        only_with: Options of which one must be given for the table to be read; empty: always.
        only_if: Tables, read before, of which one must have rows; empty: whatever they have.
        required: Whether a report without the table has nothing to say to this recipe.
        lost: What the user does without if the table is missing.
        capture: Flags of `nsys profile` that would have recorded it.
    """

    table: str
    columns: tuple[str, ...]
    lost: str
    required: bool = False
    columns_with: Mapping[str, tuple[str, ...]] | None = None
    references: Mapping[str, tuple[str, ...]] | None = None
    only_with: tuple[str, ...] = ()
    capture: str | None = None
    only_if: tuple[str, ...] = ()

    def projection(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the columns to read under these options; empty if the table is not needed."""
        if self.only_with and not any(options.get(name) for name in self.only_with):
            return ()
        extra = (cols for name, cols in (self.columns_with or {}).items() if options.get(name))
        return tuple(dict.fromkeys([*self.columns, *(col for cols in extra for col in cols)]))

    def columns_for(self, tables: Collection[str]) -> tuple[str, ...]:
        """Return the columns to read besides, where these tables have rows."""
        found = ((self.references or {}).get(table, ()) for table in tables)
        return tuple(column for columns in found for column in columns)


def read_declared(raw: Mapping[str, Any]) -> TableRead:
    """Return a read out of a manifest; KeyError and TypeError for keys missing or unknown."""
    columns_with = {name: tuple(cols) for name, cols in raw.get("columns_with", {}).items()}
    references = {name: tuple(cols) for name, cols in raw.get("references", {}).items()}
    return TableRead(
        table=raw["table"],
        columns=tuple(raw["columns"]),
        lost=raw["lost"],
        required=raw["required"],
        columns_with=columns_with,
        references=references,
        only_with=tuple(raw.get("only_with", ())),
        capture=raw.get("capture"),
        only_if=tuple(raw.get("only_if", ())),
    )
