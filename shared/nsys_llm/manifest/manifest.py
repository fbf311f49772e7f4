"""Manifests: the facts of a recipe as frozen objects.

`manifests/<recipe>.json` is the only place that lists options, tables read and columns written;
`manifests/common.json` holds what all recipes share. Everything else is derived from the objects
here: argument parsers, `metadata.json`, the reader's projection, the check of written tables, the
README's glossary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from nsys_llm.core.errors import ManifestError, UsageError
from nsys_llm.manifest.declared import (
    Metric,
    Option,
    Section,
    TableRead,
    TableWrite,
    declared,
    declared_writes,
    joined_reads,
)

_COMMON: Final = "common"
_TEXTS: Final = ("name", "title", "question", "class_name", "description")


@dataclass(frozen=True)
class Manifest:
    """One recipe. `options`, `writes` and `sections` include what all recipes share.

    Attributes:
        sided: Whether it compares sets of ranks (see `nsys_llm.trace.rank_sets`); the tables that
            all recipes share then say which set a row is of.
        recipes: Of an overview, the recipes that it runs; their options and reads are its own.
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
    recipes: tuple[str, ...] = ()

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
    names = {Path(item.name).stem for item in folder.iterdir() if item.name.endswith(".json")}
    return tuple(sorted(names - {_COMMON}))


def recipe_question(recipe: str) -> str:
    """Return what a recipe answers, without building all of its facts."""
    return str(_read_json(recipe)["question"])


@lru_cache
def load_manifest(recipe: str) -> Manifest:
    """Return the manifest of a recipe.

    Raises:
        UsageError: There is no such recipe; the message lists those there are.
    """
    if recipe not in recipe_names():
        raise UsageError(f"unknown recipe '{recipe}'; there are: {', '.join(recipe_names())}.")
    return _built(_read_json(recipe), _read_json(_COMMON))


def common_facts(sided: bool) -> tuple[tuple[Option, ...], tuple[TableWrite, ...]]:
    """Return the options and the written tables that all recipes share.

    Args:
        sided: As a recipe that compares sets of ranks writes them, with the column `run`.
    """
    common = _read_json(_COMMON)
    writes = _for_kind(common["writes"], sided)
    for raw in writes if sided else ():
        if "side" in raw:
            raw["columns"] = [{"name": "run", **raw["side"]}, *raw["columns"]]
    return declared(Option, common["options"]), declared_writes(writes)


@lru_cache
def timeline_reads() -> tuple[TableRead, ...]:
    """Return what is read of a profile to show its timeline."""
    return declared(TableRead, _read_json(_COMMON)["timeline"])


@lru_cache
def checked_reads() -> tuple[TableRead, ...]:
    """Return what is read of a profile to say what it is; every recipe reads that too."""
    return declared(TableRead, _read_json(_COMMON)["checked"])


@lru_cache
def report_schema() -> Mapping[str, Any]:
    """Return the JSON schema of report.json."""
    schema: dict[str, Any] = _read_json(_COMMON)["report"]
    return schema


def _built(facts: Mapping[str, Any], common: Mapping[str, Any]) -> Manifest:
    sided = bool(facts.get("sided", False))
    options, writes = common_facts(sided)
    recipes = tuple(facts.get("recipes", ()))
    parts = [load_manifest(recipe) for recipe in recipes]
    known = {option.name for option in options}
    own_reads = declared(TableRead, facts["reads"])
    inherited = {
        option.name: option for part in parts for option in part.options if option.name not in known
    }
    return Manifest(
        **{name: facts[name] for name in _TEXTS},
        type=facts.get("type"),
        tags=tuple(facts["tags"]),
        options=(*options, *declared(Option, facts["options"]), *inherited.values()),
        reads=joined_reads([own_reads, *(part.reads for part in parts), checked_reads()]),
        writes=(*writes, *declared_writes(facts["writes"])),
        sections=declared(Section, [*facts["sections"], *_for_kind(common["sections"], sided)]),
        sided=sided,
        metrics=declared(Metric, facts.get("metrics", ())),
        verdict=facts.get("verdict", {}),
        by_step=facts.get("by_step", False) or any(part.by_step for part in parts),
        recipes=recipes,
    )


def _for_kind(facts: Sequence[Mapping[str, Any]], sided: bool) -> list[dict[str, Any]]:
    """Return common facts without those that are not for recipes that compare sets of ranks."""
    return [
        {key: value for key, value in raw.items() if key != "unsided"}
        for raw in facts
        if not (sided and raw.get("unsided"))
    ]


def _read_json(name: str) -> dict[str, Any]:
    text = resources.files("nsys_llm.manifests").joinpath(f"{name}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
