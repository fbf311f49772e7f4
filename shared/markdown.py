"""A report as Markdown: report.md, and the first cells of the notebook."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from nsys_llm.findings import Finding
from nsys_llm.report import Report, where_to_look
from nsys_llm.sections import Section
from nsys_llm.view.results import Results
from nsys_llm.view.tables import cells, chosen_rows, more_rows
from nsys_llm.view.text import NOT_KNOWN, cleaned, shortened, spans

__all__ = ["capture_markdown", "head_markdown", "heading_link", "html_prose", "report_markdown"]

#: What prose would mean to Markdown or HTML. A backslash before punctuation makes it plain.
_NAME_LENGTH: Final = 100
_BAR: Final = "\\|"
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~$!&])")

#: What GitHub's Markdown makes a link of unasked: http://x, www.x, a@b.c.
_LINKED: Final = re.compile(r"(://|(?<=www)\.|@)", re.IGNORECASE)

Prose = Callable[[str], str]


def report_markdown(report: Report, results: Results) -> str:
    """Return the whole report: for a terminal, a pull request, a chat."""
    parts = [head_markdown(report, markdown_prose), capture_markdown(report, markdown_prose)]
    parts.append(
        "All tables, with the unit and the meaning of every column, are the parquet files beside "
        "this report. Times are as recorded."
    )
    parts += [
        section_markdown(section, results) for section in report.sections if section.in_report
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def head_markdown(report: Report, prose: Prose, links: Mapping[str, str] | None = None) -> str:
    """Return title, question, answer and findings.

    Args:
        report: What to tell.
        prose: Renders a text with names in backticks.
        links: By table, the heading of the section that shows it, where headings can be linked.
    """
    lines = [
        f"# {report.manifest.title}",
        f"**{report.manifest.question}**",
        prose(report.answer),
        f"## Findings ({len(report.findings)})",
    ]
    if not report.findings:
        lines.append("Nothing stands out by the rules of this recipe.")
    lines += [_finding(n, one, prose, links) for n, one in enumerate(report.findings, 1)]
    return "\n\n".join(lines)


def capture_markdown(report: Report, prose: Prose) -> str:
    """Return the capture's facts, its caveats, and what it could not show."""
    parts = ["## Capture", "\n".join(["| | |", "|---|---|", *_fact_rows(report, prose)])]
    for title, texts in (
        ("Read the numbers with this in mind:", report.caveats),
        ("Not in this capture:", report.unrecorded),
    ):
        if texts:
            parts += [title, "\n".join(f"- {prose(text)}" for text in texts)]
    return "\n\n".join(parts)


def section_markdown(section: Section, results: Results) -> str:
    """Return one table: what it shows, and its first rows."""
    frame, fields = results.table(section.table), results.fields(section.table)
    head = [f"## {section.title}", section.shows]
    if frame.empty:
        return "\n\n".join([*head, "No rows."])
    chosen = chosen_rows(frame, section.rows_n, section.by)
    headings = [fields[name].heading for name in section.columns]
    marks = ["---:" if fields[name].numeric else "---" for name in section.columns]
    rows = [
        [
            _cell(shown, fields[name].numeric)
            for (shown, _), name in zip(row, section.columns, strict=True)
        ]
        for row in cells(chosen, fields, section.columns, section.rows_n)
    ]
    lines = ["| " + " | ".join(row) + " |" for row in [headings, marks, *rows]]
    more = len(frame) - section.rows_n
    told = more_rows(more, section.by, fields, f"`{section.table}.parquet`")
    note = [f"{told}."] if more > 0 else []
    return "\n\n".join([*head, "\n".join(lines), *note])


def heading_link(heading: str) -> str:
    """Return the fragment by which JupyterLab links to a heading."""
    return "#" + heading.replace(" ", "-")


def markdown_prose(text: str) -> str:
    """Render prose for Markdown: names as code, everything else literally."""
    return "".join(
        _code(shortened(part, _NAME_LENGTH)) if code else _plain(part) for code, part in spans(text)
    )


def html_prose(text: str) -> str:
    """Render prose for a notebook's Markdown, which also knows HTML and TeX: nothing is left to it.

    Names become code whose every character but letters, digits and blanks is a reference.
    """
    return "".join(_html_code(part) if code else _plain(part) for code, part in spans(text))


def _finding(number: int, finding: Finding, prose: Prose, links: Mapping[str, str] | None) -> str:
    tables = [
        f"[{table}]({heading_link(links[table])})" if links and table in links else f"`{table}`"
        for table in finding.tables
    ]
    details = [f"Evidence: {prose(finding.evidence)} ({', '.join(tables)})"]
    if where := where_to_look(finding):
        details.append(f"Where: {prose(where)}")
    details.append(f"To do: {prose(finding.recommendation)}")
    if finding.capture:
        details.append(f"Record next time: {prose(f'`{finding.capture}`')}")
    # What belongs to an item stands below its first word.
    indent = " " * len(f"{number}. ")
    head = f"{number}. **{finding.severity}**: {prose(finding.title)}"
    return "\n".join([head, *(f"{indent}- {detail}" for detail in details)])


def _fact_rows(report: Report, prose: Prose) -> list[str]:
    return [f"| {label} | {prose(text).replace('|', _BAR)} |" for label, text in report.facts]


def _cell(text: str, numeric: bool) -> str:
    if numeric or text == NOT_KNOWN:
        return text
    # Inside a table even code ends at a bar; a backslash before it is taken away again.
    return _code(text).replace("|", "\\|")


def _code(text: str) -> str:
    body = text.replace("`", "'").replace("\n", " ").strip()
    return f"`{body}`" if body else ""


def _html_code(text: str) -> str:
    short = shortened(text, _NAME_LENGTH)
    title = f' title="{_references(text)}"' if short != text else ""
    return f"<code{title}>{_references(short)}</code>"


def _plain(text: str) -> str:
    return _LINKED.sub(r"\\\1", _SPECIAL.sub(r"\\\1", cleaned(text)))


def _references(text: str) -> str:
    return "".join(one if one.isalnum() or one == " " else f"&#{ord(one)};" for one in text)
