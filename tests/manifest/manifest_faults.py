"""What is wrong with manifests: what their schema says, and what refers to nothing.

The product reads its manifests unchecked, since they are its own; this is where they are checked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(Path(__file__).with_name("manifest.schema.json").read_text("utf-8"))
COMMON = {"$ref": "#/$defs/common", "$defs": SCHEMA["$defs"]}

#: By kind of chart: the keys whose values are columns.
CHARTS = {
    name.removeprefix("chart_"): part["properties"]
    for name, part in SCHEMA["$defs"].items()
    if name.startswith("chart_")
}


def document_of(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "manifests" / f"{name}.json").read_text("utf-8"))
    return document


def faults(name: str, document: Mapping[str, Any], common: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the manifest of a recipe beside the common one."""
    problems = [*_against(SCHEMA, document), *_against(COMMON, common)]
    # What refers to what is looked up in documents of the right shape only.
    return problems or list(_references(name, document, common))


def _against(schema: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, ...]:
    # Planted faults change one of two documents: the other is checked once.
    return _against_text(schema is COMMON, json.dumps(document))


@cache
def _against_text(common: bool, document: str) -> tuple[str, ...]:
    validator = jsonschema.Draft202012Validator(COMMON if common else SCHEMA)
    return tuple(
        f"{'/'.join(map(str, error.path))}: {error.message}"
        for error in validator.iter_errors(json.loads(document))
    )


def _references(name: str, document: Mapping[str, Any], common: Mapping[str, Any]) -> Iterator[str]:
    options, writes, sections = (
        [*common[key], *document[key]] for key in ("options", "writes", "sections")
    )
    if document["name"] != name:
        yield f"name is '{document['name']}'"
    names = [option["name"] for option in options]
    yield from _twice("option", names)
    yield from _twice("table", [table["file"] for table in writes])
    yield from _twice("section", [section["title"] for section in sections])
    for option in options:
        if option.get("excludes", names[0]) not in names:
            yield f"option '{option['name']}' excludes '{option['excludes']}', which does not exist"
    tables = {}
    for table in writes:
        columns = [column["name"] for column in table["columns"]]
        yield from _twice(f"{table['file']}: column", columns)
        if table.get("index", columns[0]) not in columns:
            yield f"{table['file']} has no column '{table['index']}' for its index"
        tables[table["file"]] = {
            *columns,
            *(["side"] if document.get("sided") and "side" in table else []),
        }
    for section in sections:
        yield from _missing(section, tables)


def _missing(section: Mapping[str, Any], tables: Mapping[str, set[str]]) -> Iterator[str]:
    title, table = section["title"], section["table"]
    if table not in tables:
        yield f"section '{title}' shows '{table}', which is not written"
        return
    used = {*section["columns"], *section.get("summary", ()), section.get("by")} - {None}
    for chart in section.get("charts", ()):
        for key in CHARTS[chart["kind"]].keys() & chart.keys():
            used |= {chart[key]} if isinstance(chart[key], str) else {*chart[key]}
        used |= chart.get("where", {}).keys()
    if odd := sorted(used - tables[table]):
        yield f"section '{title}': {table} has no column {', '.join(odd)}"


def _twice(kind: str, names: Sequence[str]) -> Iterator[str]:
    yield from (f"{kind} '{name}' twice" for name, n in Counter(names).items() if n > 1)
