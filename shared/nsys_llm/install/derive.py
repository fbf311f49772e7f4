"""Files of this repository that follow from the manifests and from what is known of versions.

These are each recipe's metadata.json, the page on findings, and parts of pages.

python -m nsys_llm.install.derive           rewrites them in the checkout below the current folder
python -m nsys_llm.install.derive --check   only tells which are stale (exit 1)
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from nsys_llm.core.errors import UsageError
from nsys_llm.install.findings_page import findings_page
from nsys_llm.manifest.manifest import Column, Manifest, Option, load_manifest, recipe_names
from nsys_llm.profile.trace_schema import ExportSchema, Framework, frameworks, schema_versions

_SECTION: Final = "<!-- derived: {name} -->\n"
_SECTION_END: Final = "<!-- end -->"

#: How exports and the framework of a release are tested, by the words of the data file.
_EXPORTS: Final = {
    "nsys": "made by this release from real reports",
    "exports": "real ones",
    "generated": "generated",
}
_FRAMEWORKS: Final = {"nsys": "this release, in all modes", "stand-in": "a stand-in of {}"}


def metadata(manifest: Manifest) -> str:
    """Return the content of a recipe's metadata.json, as NVIDIA's loader reads it."""
    document = {
        "module_name": manifest.name,
        "class_name": manifest.class_name,
        "display_name": manifest.title,
        "description": manifest.description,
        "tags": list(manifest.tags),
    }
    if manifest.type is not None:
        document["type"] = manifest.type
    return json.dumps(document, indent=4) + "\n"


def options_table(manifest: Manifest) -> str:
    """Return the options of a recipe as a Markdown table."""
    lines = ["| option | what it does |", "|---|---|"]
    lines += [f"| {_typed(option)} | {_cell(_help(option))} |" for option in manifest.options]
    return "\n".join(lines) + "\n"


def tables_glossary(manifest: Manifest) -> str:
    """Return every written table with its columns as Markdown."""
    parts = []
    for table in manifest.writes:
        parts.append(f"**`{table.file}.parquet`**: a row is {_cell(table.row)}.\n")
        parts += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        parts += [_column_row(column) for column in table.columns]
        parts.append("")
    return "\n".join(parts) + "\n"


def metrics_table(manifest: Manifest) -> str:
    """Return what a gate can be put on as a Markdown table; nothing for a recipe without gates."""
    if not manifest.metrics:
        return ""
    lines = ["| metric | unit | meaning |", "|---|---|---|"]
    lines += [
        f"| `{metric.typed}` | {metric.unit} | {_cell(metric.meaning)} |"
        for metric in manifest.metrics
    ]
    return "\n".join(lines) + "\n"


def verdict_table(manifest: Manifest) -> str:
    """Return the keys of verdict.json as a Markdown table; nothing for a recipe without it."""
    if not manifest.verdict:
        return ""
    lines = ["| key | meaning |", "|---|---|"]
    lines += [f"| `{key}` | {_cell(meaning)} |" for key, meaning in manifest.verdict.items()]
    return "\n".join(lines) + "\n"


def versions_table() -> str:
    """Return what is known of each release of Nsight Systems, and how it is tested, as Markdown."""
    titles = ("Nsight Systems", "export schema", "tables known from", "exports tested")
    lines = [f"| {' | '.join((*titles, '`nsys recipe` tested with'))} |", "|---|---|---|---|---|"]
    tested = {release: one for one in frameworks() for release in one.covers}
    schemas = {one.product_date: one for one in map(ExportSchema.load, schema_versions())}
    for release in sorted(tested):
        lines.append(_version_row(release, schemas.get(release), tested[release]))
    unknown = "nothing; columns are found by name, and a note says so"
    lines.append(f"| newer | any | {unknown} | generated, with columns and tables added | - |")
    return "\n".join(lines) + "\n"


def derived_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each derived file of a checkout with the content that it should have.

    Raises:
        UsageError: The folder is no checkout of this project.
    """
    if not (root / "manifests" / "common.json").is_file():
        raise UsageError(f"{root}: not a checkout of nsys-llm-recipes (no manifests/common.json).")
    for name in recipe_names():
        manifest = load_manifest(name)
        yield root / "recipes" / name / "metadata.json", metadata(manifest)
    findings = root / "docs" / "findings.md"
    yield findings, findings_page()
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    for page in (one for one in pages if one != findings):
        text = _with_section(page.read_text("utf-8"), "versions", versions_table())
        for name in recipe_names():
            manifest = load_manifest(name)
            text = _with_section(text, f"options of {name}", options_table(manifest))
            text = _with_section(text, f"metrics of {name}", metrics_table(manifest))
            text = _with_section(text, f"verdict of {name}", verdict_table(manifest))
            text = _with_section(text, f"tables of {name}", tables_glossary(manifest))
        yield page, text


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite or check the derived files; return 1 if --check finds a stale one."""
    parser = argparse.ArgumentParser(prog="python -m nsys_llm.install.derive", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, tell what is stale")
    check = parser.parse_args(arguments).check
    try:
        stale = [
            (path, text)
            for path, text in derived_files(Path.cwd())
            if not path.is_file() or path.read_text("utf-8") != text
        ]
    except UsageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return int(error.exit_code)
    for path, text in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(Path.cwd())}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


def _version_row(release: str, schema: ExportSchema | None, framework: Framework) -> str:
    runs = _FRAMEWORKS[framework.tested].format(framework.release)
    if schema is None:
        return f"| {release} | not seen | nothing; columns are found by name | - | {runs} |"
    exports = ", ".join(_EXPORTS[one] for one in schema.tested)
    return f"| {release} | {schema.version} | {schema.known_from} | {exports} | {runs} |"


def _typed(option: Option) -> str:
    value = "\\|".join(option.choices) if option.choices else option.metavar
    return f"`{option.flag}`" + (f" `{value}`" if value else "")


def _help(option: Option) -> str:
    default = "" if option.default is None else f" Default: {option.default}."
    return option.help + default


def _column_row(column: Column) -> str:
    null = ", may be null" if column.nullable else ""
    dtype, unit = column.dtype + null, column.unit or ""
    return f"| `{column.name}` | {dtype} | {unit} | {_cell(column.meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _with_section(text: str, name: str, content: str) -> str:
    start = re.escape(_SECTION.format(name=name))
    pattern = re.compile(f"({start}).*?({re.escape(_SECTION_END)})", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}\n{content}\n{match[2]}", text)


if __name__ == "__main__":
    sys.exit(main())
