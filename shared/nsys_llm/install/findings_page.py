"""The page docs/findings.md: every finding with its threshold, source and advice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.report.analysis import load_analysis
from nsys_llm.report.rules import OURS, Rule
from nsys_llm.report.run_texts import RULES
from nsys_llm.report.templates import readable

_TITLE: Final = """# Findings

<!-- Made by `python -m nsys_llm.install.derive` from findings/texts.py of each recipe. -->

This page lists every finding by recipe: its title, its condition with the severity, its advice, and
the tables that hold its numbers. Thresholds are this project's unless a source is named. A finding
that gains less than 0.1 ms of a run is never high. A run fills in the words in braces, such as
`{rank}`. The id is in the column `rule` of findings.parquet and in report.json.
"""
_HEAD: Final = "| id | title | when | advice | numbers in |\n|---|---|---|---|---|"


def findings_page() -> str:
    """Return the page as Markdown."""
    parts = [_TITLE, "## All recipes\n", _table(RULES.values())]
    for recipe in recipe_names():
        parts += [f"## {recipe}\n", _table(load_analysis(recipe).rules.values())]
    return "\n".join(parts)


def _table(rules: Iterable[Rule]) -> str:
    return "\n".join([_HEAD, *map(_row, sorted(rules, key=lambda rule: rule.id))]) + "\n"


def _row(rule: Rule) -> str:
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
    cells = (f"`{rule.id}`", "<br>".join(titles), f"{rule.threshold}{source}", "<br>".join(advice))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (*cells, tables))} |"
