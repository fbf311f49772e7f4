"""The page docs/findings.md: every finding with its threshold, source and advice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.report.analysis import load_rules
from nsys_llm.report.rules import Rule
from nsys_llm.report.run_texts import RULES
from nsys_llm.report.templates import readable

_TITLE: Final = """# Findings

<!-- Made by `python -m nsys_llm.install.derive` from findings/texts.py of each recipe. -->

This page lists every finding: its condition and severity, the source of its thresholds, and its
advice. What gains less than 0.1 ms of a run is never high. A run fills in the words in braces,
such as `{rank}`. The id is in the column `rule` of findings.parquet and in report.json.
"""


def findings_page() -> str:
    """Return the page as Markdown."""
    parts = [_TITLE, "## All recipes\n", *_section(RULES.values())]
    for recipe in recipe_names():
        parts += [f"## {recipe}\n", *_section(load_rules(recipe).values())]
    return "\n".join(parts)


def _section(rules: Iterable[Rule]) -> Iterator[str]:
    for rule in sorted(rules, key=lambda rule: rule.id):
        yield f"**`{rule.id}`**: {readable(rule.title)}\n"
        yield f"- when: {rule.threshold} (source: {rule.source})"
        yield f"- advice: {readable(rule.recommendation)}"
        for name, case in rule.cases.items():
            if case.title is not None:
                yield f"- titled, in the case `{name}`: {readable(case.title)}"
            if case.recommendation is not None:
                yield f"- advice, in the case `{name}`: {readable(case.recommendation)}"
        if rule.record is not None:
            yield f"- to record: `{rule.record}`"
        yield f"- numbers in: {', '.join(f'`{table}`' for table in rule.tables)}\n"
