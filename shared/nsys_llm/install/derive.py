"""Files of this repository that follow from the manifests and from what is known of versions.

These are each recipe's metadata.json, the pages below docs/reference/, the page of findings, the
versions on a page, and the list of packages that the scripts of recipes look for.

python -m nsys_llm.install.derive           rewrites them in the checkout below the current folder
python -m nsys_llm.install.derive --check   only tells which are stale (exit 1)
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from nsys_llm.core.errors import UsageError
from nsys_llm.manifest.declared import Column, Option, TableWrite
from nsys_llm.manifest.manifest import Manifest, common_facts, load_manifest, recipe_names
from nsys_llm.report.analysis import load_rules
from nsys_llm.report.rules import OURS, Rule
from nsys_llm.report.run_texts import RULES
from nsys_llm.report.templates import readable
from nsys_llm.testing.trace_schema import ExportSchema, Framework, frameworks, schema_versions

_SECTION: Final = "<!-- derived: {name} -->\n"
_SECTION_END: Final = "<!-- end -->"
#: How exports and the framework of a release are tested, by the words of the data file.
_EXPORTS: Final = {
    "nsys": "made by this release from real reports",
    "exports": "real ones",
    "generated": "generated",
}
_FRAMEWORKS: Final = {"nsys": "this release, in all modes", "stand-in": "a stand-in of {}"}
_TITLE: Final = """# Findings

<!-- Made by `python -m nsys_llm.install.derive` from findings/texts.py of each recipe. -->

This page lists every finding by recipe: its title, its condition with the severity, its advice, and
the tables that hold its numbers. Thresholds are this project's unless a source is named. A finding
that gains less than 0.1 ms of a run is never high. A run fills in the words in braces, such as
`{rank}`. The id is in the column `rule` of findings.parquet and in report.json.
"""


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


def common_page() -> str:
    """Return the page of the options and tables that all recipes share."""
    options, plain = common_facts(sided=False)
    _, with_run = common_facts(sided=True)
    writes = {table.file: table for table in (*plain, *with_run)}.values()
    return _page(
        "Options and tables of every recipe",
        "What only one recipe has is on that recipe's page beside this one. Only the tables of\n"
        "`trace_diff`, which compares runs, have the column `run`.",
        ("Options", options_table(options)),
        ("Tables", tables_glossary(tuple(writes))),
    )


def recipe_page(manifest: Manifest) -> str:
    """Return the page of the options, metrics, keys and tables that only one recipe has."""
    options, writes = common_facts(manifest.sided)
    metrics = [f"| `{it.typed}` | {it.unit} | {_cell(it.meaning)} |" for it in manifest.metrics]
    keys = [f"| `{key}` | {_cell(meaning)} |" for key, meaning in manifest.verdict.items()]
    return _page(
        f"{manifest.name}: options and tables",
        f"What the numbers mean: [{manifest.name}](../{manifest.name}.md). Options and tables\n"
        "that every recipe has: [common](common.md). Unit and meaning of each column are in the\n"
        "parquet files too, as field metadata.",
        ("Options", options_table(manifest.options[len(options) :])),
        ("Metrics of gates", _table(("metric", "unit", "meaning"), metrics)),
        ("Keys of verdict.json", _table(("key", "meaning"), keys)),
        ("Tables", tables_glossary(manifest.writes[len(writes) :])),
    )


def options_table(options: Sequence[Option]) -> str:
    """Return options as a Markdown table."""
    rows = []
    for option in options:
        default = "" if option.default is None else f" Default: {option.default}."
        rows.append(f"| {_typed(option)} | {_cell(option.help + default)} |")
    return _table(("option", "what it does"), rows)


def tables_glossary(tables: Sequence[TableWrite]) -> str:
    """Return written tables with their columns as Markdown."""
    titles = ("column", "type", "unit", "meaning")
    return "\n".join(
        f"**`{table.file}.parquet`**: a row is {_cell(table.row)}.\n\n"
        + _table(titles, [_column_row(column) for column in table.columns])
        for table in tables
    )


def versions_table() -> str:
    """Return what is known of each release of Nsight Systems, and how it is tested, as Markdown."""
    titles = ("Nsight Systems", "export schema", "tables known from", "exports tested")
    tested = {release: framework for framework in frameworks() for release in framework.covers}
    schemas = {item.product_date: item for item in map(ExportSchema.load, schema_versions())}
    rows = [_version_row(name, schemas.get(name), tested[name]) for name in sorted(tested)]
    unknown = "nothing; columns are found by name, and a note says so"
    rows.append(f"| newer | any | {unknown} | generated, with columns and tables added | - |")
    return _table((*titles, "`nsys recipe` tested with"), rows)


def derived_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each derived file of a checkout with the content that it should have.

    Raises:
        UsageError: The folder is no checkout of this project.
    """
    if not (root / "manifests" / "common.json").is_file():
        raise UsageError(f"{root}: not a checkout of nsys-llm-recipes (no manifests/common.json).")
    project = (root / "pyproject.toml").read_text("utf-8")
    # Python 3.10 has no reader for TOML, and the list is written one entry a line.
    block = project.partition("\ndependencies = [\n")[2].partition("\n]")[0]
    packages = json.dumps(re.findall(r'^ *"(.+)",$', block, re.M), indent=1)
    yield root / "shared/nsys_llm/core/needed.json", f"{packages}\n"
    reference = root / "docs" / "reference"
    yield reference / "common.md", common_page()
    for name in recipe_names():
        manifest = load_manifest(name)
        yield root / "recipes" / name / "metadata.json", metadata(manifest)
        yield reference / f"{name}.md", recipe_page(manifest)
    findings = root / "docs" / "findings.md"
    yield findings, findings_page()
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    for page in (page for page in pages if page != findings):
        text = page.read_text("utf-8")
        yield page, _with_section(text, "versions", versions_table())


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite or check the derived files; return 1 if --check finds a stale one."""
    parser = argparse.ArgumentParser(prog="python -m nsys_llm.install.derive", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, list what is stale")
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
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


def _page(title: str, about: str, *sections: tuple[str, str]) -> str:
    parts = [f"## {heading}\n\n{content}" for heading, content in sections if content]
    generated = "<!-- written by python -m nsys_llm.install.derive -->"
    return "\n".join([f"# {title}\n", f"{generated}\n", f"{about}\n", *parts])


def _table(titles: Sequence[str], rows: Sequence[str]) -> str:
    """Return a Markdown table; nothing for one without rows."""
    if not rows:
        return ""
    head = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    return "\n".join([*head, *rows]) + "\n"


def _version_row(release: str, schema: ExportSchema | None, framework: Framework) -> str:
    runs = _FRAMEWORKS[framework.tested].format(framework.release)
    if schema is None:
        return f"| {release} | not seen | nothing; columns are found by name | - | {runs} |"
    exports = ", ".join(_EXPORTS[item] for item in schema.tested)
    return f"| {release} | {schema.version} | {schema.known_from} | {exports} | {runs} |"


def _typed(option: Option) -> str:
    value = "\\|".join(option.choices) if option.choices else option.metavar
    alias = f", `--{option.alias}`" if option.alias else ""
    return f"`{option.flag}`{alias}" + (f" `{value}`" if value else "")


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


def findings_page() -> str:
    """Return the page as Markdown."""
    parts = [_TITLE, "## All recipes\n", _rules_table(RULES.values())]
    for recipe in recipe_names():
        parts += [f"## {recipe}\n", _rules_table(load_rules(recipe).values())]
    return "\n".join(parts)


def _rules_table(rules: Iterable[Rule]) -> str:
    titles = ("id", "title", "when", "advice", "numbers in")
    return _table(titles, [_rule_row(rule) for rule in sorted(rules, key=lambda rule: rule.id)])


def _rule_row(rule: Rule) -> str:
    """Return one rule, what it says in special cases below what it says else."""
    source = "" if rule.source == OURS else f" (source: {rule.source})"
    titles, advice = [readable(rule.title)], [readable(rule.recommendation)]
    for name, case in rule.cases.items():
        titles += [f"`{name}`: {readable(case.title)}"] if case.title is not None else []
        if case.recommendation is not None:
            advice.append(f"`{name}`: {readable(case.recommendation)}")
    if rule.record is not None:
        advice.append(f"Record `{rule.record}`.")
    tables = ", ".join(f"`{table}`" for table in rule.tables)
    cells = ("<br>".join(titles), f"{rule.threshold}{source}", "<br>".join(advice), tables)
    return f"| `{rule.id}` | {' | '.join(map(_cell, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
