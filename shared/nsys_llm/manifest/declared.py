"""What a manifest declares: options, tables read, tables written, sections shown, and metrics.

Manifests are ours: nothing here checks them. That is done once, by `tests/manifest`, with the
schema beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class Option:
    """One command-line option; `name` is the field, `--name-with-dashes` the flag.

    Attributes:
        alias: Another name, which Nsight Systems' own recipes have for it.
    """

    name: str
    type: str
    help: str
    group: str
    default: Any = None
    unit: str | None = None
    metavar: str | None = None
    required: bool = False
    choices: tuple[str, ...] = ()
    excludes: str | None = None
    alias: str | None = None

    @property
    def flag(self) -> str:
        """The option as typed, with its dashes."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Column:
    """One column of a written table. `dtype` is int64, float64, string or bool."""

    name: str
    dtype: str
    meaning: str
    nullable: bool
    unit: str | None = None


@dataclass(frozen=True)
class TableWrite:
    """One written table.

    Attributes:
        index: Column that becomes the index of the data frame, as NVIDIA's tables have it.
        option: The option without which it has no rows; None for most tables.
        reads: Tables read, without each of which it has no rows.
    """

    file: str
    row: str
    columns: tuple[Column, ...]
    index: str | None = None
    option: str | None = None
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric:
    """Something that a gate can be put on.

    Attributes:
        name: As a gate says it; `kernel` where it takes an argument, as in `kernel(flash*)`.
        unit: Of its value: ns, %, bytes or count.
        argument: What stands in the brackets; None for a metric without.
        falls: Whether it is worse the smaller it is; of all others the greater is the worse.
    """

    name: str
    unit: str
    meaning: str
    argument: str | None = None
    falls: bool = False

    @property
    def typed(self) -> str:
        """The metric as people type it."""
        return self.name if self.argument is None else f"{self.name}({self.argument})"


@dataclass(frozen=True)
class TableRead:
    """One table of an export that a recipe reads, in our names (see `nsys_llm.profile.tables`).

    Attributes:
        references: Further columns, by a table that stands before this one and has rows that they
            refer to.
        only_with: Options of which one must be given for the table to be read; empty: always.
        only_if: Tables, read before, of which one must have rows, or columns of them
            (`kernels.graph_node_id`) with a value; empty: whatever they have. Of a table with both,
            either is enough.
        required: Whether a report without the table has nothing to say to this recipe.
        lost: What the user does without if the table is missing.
        capture: Flags of `nsys profile` that would have recorded it.
    """

    table: str
    columns: tuple[str, ...]
    lost: str
    required: bool = False
    columns_with: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    references: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only_with: tuple[str, ...] = ()
    capture: str | None = None
    only_if: tuple[str, ...] = ()

    def projection(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the columns to read under these options; empty if the table is not needed."""
        if self.only_with and not self.only_if and not self.is_asked(options):
            return ()
        extra = (cols for name, cols in self.columns_with.items() if options.get(name))
        return tuple(dict.fromkeys([*self.columns, *(col for cols in extra for col in cols)]))

    def is_asked(self, options: Mapping[str, Any]) -> bool:
        """Return whether one of `only_with` is given."""
        return any(options.get(name) for name in self.only_with)


@dataclass(frozen=True)
class Section:
    """One table as people read it.

    Attributes:
        lead: Whether it is read first: report.md has no others, and the notebook folds them.
        opening: Whether its figures, without rows, stand ahead of the findings; report.md, which
            has no figures, leaves it out.
        beside: Whether its figures, without rows, stand below the finding whose number its rows
            have; report.md leaves it out.
        extra: Whether few captures have it: it stands apart, behind all others.
        summary: Columns of the rows that the terminal shows; empty where it shows none.
        by: Column of numbers by which the rows that are shown are chosen, the largest first, above
            or below 0, where the table has more; None shows the first rows.
    """

    table: str
    title: str
    shows: str
    columns: tuple[str, ...]
    rows_n: int = 15
    charts: tuple[Mapping[str, Any], ...] = ()
    lead: bool = False
    opening: bool = False
    beside: bool = False
    optional: bool = False
    extra: bool = False
    summary: tuple[str, ...] = ()
    by: str | None = None


def declared(kind: type[_T], rows: Iterable[Mapping[str, Any]]) -> tuple[_T, ...]:
    """Return what JSON objects declare; lists, also those in objects, become tuples."""
    return tuple(kind(**{name: _frozen(value) for name, value in row.items()}) for row in rows)


def declared_writes(rows: Iterable[Mapping[str, Any]]) -> tuple[TableWrite, ...]:
    """Return the same of written tables, whose columns are objects too."""
    columns = ({**row, "columns": list(declared(Column, row["columns"]))} for row in rows)
    return declared(
        TableWrite, ({key: row[key] for key in row if key != "side"} for row in columns)
    )


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(inner) for name, inner in value.items()}
    return tuple(value) if isinstance(value, list) else value


def joined_reads(reads: Sequence[Sequence[TableRead]]) -> tuple[TableRead, ...]:
    """Return what several recipes read together: each table once, with the columns of all.

    A table that some read under an option only is read always if one reads it always; what a
    table's reading hangs on stands before it, as it does in each recipe.
    """
    together: dict[str, list[TableRead]] = {}
    for read in sorted(reads, key=len, reverse=True):
        for table in read:
            together.setdefault(table.table, []).append(table)
    return tuple(_joined_read(same) for same in together.values())


def _joined_read(same: Sequence[TableRead]) -> TableRead:
    always = [read for read in same if not read.only_with]
    needed = [read for read in same if not read.only_if]
    return TableRead(
        table=same[0].table,
        columns=_distinct(read.columns for read in same),
        lost=same[0].lost,
        required=any(read.required for read in same),
        columns_with=_distinct_by_name(read.columns_with for read in same),
        references=_distinct_by_name(read.references for read in same),
        only_with=() if always else _distinct(read.only_with for read in same),
        capture=next((read.capture for read in same if read.capture), None),
        only_if=() if needed else _distinct(read.only_if for read in same),
    )


def _distinct(names: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))


def _distinct_by_name(
    parts: Iterable[Mapping[str, tuple[str, ...]]],
) -> dict[str, tuple[str, ...]]:
    merged: dict[str, tuple[str, ...]] = {}
    for part in parts:
        for name, columns in part.items():
            merged[name] = _distinct([merged.get(name, ()), columns])
    return merged
