"""Manifests: the facts of a recipe as frozen objects, validated when they are read.

`manifests/<recipe>.json` is the only place that lists options, tables read and columns written;
`manifests/common.json` holds what all recipes share. Everything else is derived from the objects
here: argument parsers, `metadata.json`, the reader's projection, the check of written tables, the
README's glossary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from nsys_llm.errors import ManifestError, UsageError
from nsys_llm.reads import TableRead, read_declared
from nsys_llm.sections import Section, read_section, section_problems
from nsys_llm.units import COLUMN_SUFFIXES, UNITS

__all__ = [
    "Column",
    "Manifest",
    "Metric",
    "Option",
    "TableRead",
    "TableWrite",
    "load_manifest",
    "recipe_names",
    "report_schema",
]

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
_COMMON: Final = "common"


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


@dataclass(frozen=True)
class Manifest:
    """One recipe. `options`, `writes` and `sections` include what all recipes share.

    Attributes:
        question: What the recipe answers, as a user asks it.
        sections: What the report and the notebook show, from coarse to fine.
        sided: Whether it compares sets of ranks (see `nsys_llm.sides`); the tables that all
            recipes share then say which set a row is of.
        metrics: What a gate can be put on.
        verdict: What each key of verdict.json means; empty for a recipe without gates.
        by_step: Whether it tells of steps by itself, so that --step alone means something.
    """

    name: str
    title: str
    question: str
    class_name: str
    description: str
    type: str | None
    tags: tuple[str, ...]
    options: tuple[Option, ...]
    reads: tuple[TableRead, ...]
    writes: tuple[TableWrite, ...]
    sections: tuple[Section, ...]
    sided: bool = False
    metrics: tuple[Metric, ...] = ()
    verdict: Mapping[str, str] = field(default_factory=dict)
    by_step: bool = False

    def table(self, file: str) -> TableWrite:
        """Return one written table by name.

        Raises:
            ManifestError: The recipe has no such table.
        """
        for table in self.writes:
            if table.file == file:
                return table
        raise ManifestError(f"manifests/{self.name}.json writes no table '{file}'.")


def recipe_names() -> tuple[str, ...]:
    """Return the names of all recipes that have a manifest, sorted."""
    folder = resources.files("nsys_llm.manifests")
    names = (item.name.removesuffix(".json") for item in folder.iterdir() if _is_json(item.name))
    return tuple(sorted(name for name in names if name != _COMMON))


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of report.json, in which every key says what it means."""
    schema: dict[str, Any] = _read_json(_COMMON)["report"]
    return schema


@lru_cache
def load_manifest(recipe: str) -> Manifest:
    """Read and validate the manifest of a recipe.

    Raises:
        UsageError: There is no such recipe; the message lists those there are.
        ManifestError: The manifest contradicts itself.
    """
    if recipe not in recipe_names():
        raise UsageError(f"unknown recipe '{recipe}'; there are: {', '.join(recipe_names())}.")
    try:
        manifest = _built(_read_json(recipe), _read_json(_COMMON))
    except KeyError as error:
        raise ManifestError(f"manifests/{recipe}.json: {error} is missing.") from error
    except TypeError as error:
        # A key that a dataclass does not know; Python's message names it.
        raise ManifestError(f"manifests/{recipe}.json: {error}.") from error
    _validate(manifest, recipe)
    return manifest


def _built(own: Mapping[str, Any], common: Mapping[str, Any]) -> Manifest:
    sided = bool(own.get("sided", False))
    shared_writes = [_with_side(raw) for raw in common["writes"]] if sided else common["writes"]
    return Manifest(
        name=own["name"],
        title=own["title"],
        question=own["question"],
        class_name=own["class_name"],
        description=own["description"],
        type=own.get("type"),
        tags=tuple(own.get("tags", ())),
        options=tuple(_option(raw) for raw in [*common["options"], *own["options"]]),
        reads=tuple(read_declared(raw) for raw in own["reads"]),
        writes=tuple(_write(raw) for raw in [*shared_writes, *own["writes"]]),
        sections=tuple(read_section(raw) for raw in [*own["sections"], *common["sections"]]),
        sided=sided,
        metrics=tuple(Metric(**raw) for raw in own.get("metrics", ())),
        verdict=dict(own.get("verdict", {})),
        by_step=own.get("by_step", False),
    )


def _with_side(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a table of all recipes as one that compares sets of ranks writes it."""
    if "side" not in raw:
        return raw
    table = {key: value for key, value in raw.items() if key != "side"}
    return {**table, "columns": [{"name": "side", **raw["side"]}, *table["columns"]]}


def _is_json(name: str) -> bool:
    return name.endswith(".json")


def _read_json(name: str) -> dict[str, Any]:
    text = resources.files("nsys_llm.manifests").joinpath(f"{name}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _option(raw: Mapping[str, Any]) -> Option:
    return Option(**{**raw, "choices": tuple(raw.get("choices", ()))})


def _write(raw: Mapping[str, Any]) -> TableWrite:
    plain = {key: value for key, value in raw.items() if key != "side"}
    return TableWrite(**{**plain, "columns": tuple(Column(**column) for column in raw["columns"])})


def _validate(manifest: Manifest, file_name: str) -> None:
    problems = [
        *_name_problems(manifest, file_name),
        *(text for option in manifest.options for text in _option_problems(option, manifest)),
        *(text for table in manifest.writes for text in _table_problems(table)),
        *section_problems(manifest.sections, _columns_by_table(manifest)),
    ]
    if problems:
        raise ManifestError(f"manifests/{file_name}.json: {'; '.join(problems)}.")


def _columns_by_table(manifest: Manifest) -> dict[str, set[str]]:
    return {table.file: {column.name for column in table.columns} for table in manifest.writes}


def _name_problems(manifest: Manifest, file_name: str) -> Iterable[str]:
    if manifest.name != file_name:
        yield f"name is '{manifest.name}'"
    for kind, names in (
        ("option", [option.name for option in manifest.options]),
        ("table", [table.file for table in manifest.writes]),
    ):
        yield from (f"{kind} '{name}' twice" for name in set(names) if names.count(name) > 1)


def _option_problems(option: Option, manifest: Manifest) -> Iterable[str]:
    if option.type not in _OPTION_TYPES:
        yield f"option '{option.name}' has the unknown type '{option.type}'"
    if option.unit is not None and option.unit not in UNITS:
        yield f"option '{option.name}' has the unknown unit '{option.unit}'"
    if option.excludes and option.excludes not in {other.name for other in manifest.options}:
        yield f"option '{option.name}' excludes '{option.excludes}', which does not exist"


def _table_problems(table: TableWrite) -> Iterable[str]:
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
