"""Options, written tables and metrics as a manifest declares them, read and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from nsys_llm.core.units import COLUMN_SUFFIXES, UNITS

_DTYPES: Final = frozenset({"int64", "float64", "string", "bool"})
_OPTION_TYPES: Final = frozenset(
    {
        "choice",
        "count",
        "flag",
        "gates",
        "numbers",
        "output",
        "paths",
        "percent",
        "phase_map",
        "share",
        "step_range",
        "text",
        "time",
        "time_range",
        "weights",
    }
)


@dataclass(frozen=True)
class Option:
    """One command-line option; `name` is the field, `--name-with-dashes` the flag.

    Attributes:
        excludes: Another option that cannot be given together with this one.
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
        file: Name without extension.
        row: What one row is.
        index: Column that becomes the index of the data frame, as NVIDIA's tables have it.
    """

    file: str
    row: str
    columns: tuple[Column, ...]
    index: str | None = None


@dataclass(frozen=True)
class Metric:
    """Something that a gate can be put on; the greater it is, the worse.

    Attributes:
        name: As a gate says it; `kernel` where it takes an argument, as in `kernel(flash*)`.
        unit: Of its value: ns, %, bytes or count.
        meaning: One sentence.
        argument: What stands in the brackets; None for a metric without.
    """

    name: str
    unit: str
    meaning: str
    argument: str | None = None

    @property
    def typed(self) -> str:
        """The metric as people type it."""
        return self.name if self.argument is None else f"{self.name}({self.argument})"


def read_option(raw: Mapping[str, Any]) -> Option:
    """Return an option out of its JSON object; TypeError for a key that it does not have."""
    return Option(**{**raw, "choices": tuple(raw.get("choices", ()))})


def read_write(raw: Mapping[str, Any]) -> TableWrite:
    """Return a written table out of its JSON object; TypeError for a key that it does not have."""
    plain = {key: value for key, value in raw.items() if key != "side"}
    return TableWrite(**{**plain, "columns": tuple(Column(**column) for column in raw["columns"])})


def option_problems(option: Option, names: AbstractSet[str]) -> Iterable[str]:
    """Yield what is wrong with an option, beside all options of these names."""
    if option.type not in _OPTION_TYPES:
        yield f"option '{option.name}' has the unknown type '{option.type}'"
    if option.unit is not None and option.unit not in UNITS:
        yield f"option '{option.name}' has the unknown unit '{option.unit}'"
    if option.excludes and option.excludes not in names:
        yield f"option '{option.name}' excludes '{option.excludes}', which does not exist"


def table_problems(table: TableWrite) -> Iterable[str]:
    """Yield what is wrong with a written table."""
    names = [column.name for column in table.columns]
    yield from (f"{table.file}.{name} twice" for name in set(names) if names.count(name) > 1)
    if table.index is not None and table.index not in names:
        yield f"{table.file} has no column '{table.index}' for its index"
    for column in table.columns:
        if column.dtype not in _DTYPES:
            yield f"{table.file}.{column.name} has the unknown dtype '{column.dtype}'"
        if column.unit is None:
            continue
        if column.unit not in UNITS:
            yield f"{table.file}.{column.name} has the unknown unit '{column.unit}'"
        # Tables with an index keep NVIDIA's column names, which carry no unit.
        suffix = COLUMN_SUFFIXES.get(column.unit, "")
        if table.index is None and not column.name.endswith(suffix):
            yield f"{table.file}.{column.name} must end in {suffix}"
