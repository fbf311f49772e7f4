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

from nsys_llm.core.errors import ManifestError, UsageError
from nsys_llm.manifest.declared import (
    Column,
    Metric,
    Option,
    TableWrite,
    option_problems,
    read_option,
    read_write,
    table_problems,
)
from nsys_llm.manifest.reads import TableRead, read_declared
from nsys_llm.manifest.sections import Section, read_section, section_problems

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

_COMMON: Final = "common"


@dataclass(frozen=True)
class Manifest:
    """One recipe. `options`, `writes` and `sections` include what all recipes share.

    Attributes:
        question: What the recipe answers, as a user asks it.
        sections: What the report and the notebook show, from coarse to fine.
        sided: Whether it compares sets of ranks (see `nsys_llm.trace.sides`); the tables that all
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


def common_facts(sided: bool) -> tuple[tuple[Option, ...], tuple[TableWrite, ...]]:
    """Return the options and the written tables that all recipes share.

    Args:
        sided: As a recipe that compares sets of ranks writes them, with the column `side`.
    """
    common = _read_json(_COMMON)
    writes = [_with_side(raw) for raw in common["writes"]] if sided else common["writes"]
    return tuple(map(read_option, common["options"])), tuple(map(read_write, writes))


def _built(own: Mapping[str, Any], common: Mapping[str, Any]) -> Manifest:
    sided = bool(own.get("sided", False))
    options, writes = common_facts(sided)
    return Manifest(
        name=own["name"],
        title=own["title"],
        question=own["question"],
        class_name=own["class_name"],
        description=own["description"],
        type=own.get("type"),
        tags=tuple(own.get("tags", ())),
        options=(*options, *map(read_option, own["options"])),
        reads=tuple(read_declared(raw) for raw in own["reads"]),
        writes=(*writes, *map(read_write, own["writes"])),
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


def _validate(manifest: Manifest, file_name: str) -> None:
    names = {option.name for option in manifest.options}
    problems = [
        *_name_problems(manifest, file_name),
        *(text for option in manifest.options for text in option_problems(option, names)),
        *(text for table in manifest.writes for text in table_problems(table)),
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
