"""A report as Markdown: report.md, and prose for the notebook's cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from nsys_llm.manifest.declared import Section
from nsys_llm.report.findings import Finding, severity_counts
from nsys_llm.report.page import NAME_LENGTH
from nsys_llm.report.price import TAIL
from nsys_llm.report.report import (
    MOST_SHOWN,
    NOT_ADDITIVE,
    Prose,
    Report,
    finding_parts,
    remark_text,
)
from nsys_llm.view.results import Results
from nsys_llm.view.tables import PROSE, Field, cells, headings, more_rows, parted_columns, unfilled
from nsys_llm.view.text import NOT_KNOWN, cleaned, shortened, spans

#: What a word could mean to Markdown or HTML, or what GitHub makes a link of unasked: http://x,
#: www.x, a@b.c. Such a word is shown as code, which a reader of the plain file can read, too.
_SPECIAL: Final = re.compile(r"[\\`*_\[\]~$]|<\S|&\S|^[#>]+$|://|www\.|@", re.IGNORECASE)
_BACKTICKS: Final = re.compile("`+")
#: A word without the punctuation around it.
_WORD: Final = re.compile(r"([(\"']*)(.*?)([)\"',.;:!?]*)")
#: A backslash before punctuation makes it plain: where code would touch code.
_ESCAPED: Final = re.compile(r"([\\`*_{}\[\]<>#|~$!&:@.])")

#: A table is read in a terminal too; whole names are in the notebook and the files.
_CELL_LENGTH: Final = 48
#: Of a sentence, which tells nothing without its middle.
_PROSE_LENGTH: Final = 80

#: Below the findings and the capture.
_FILES: Final = (
    "All tables with rows, with the unit and the meaning of every column, are the parquet files "
    "beside this report; `report.json` says why others have none. Times are as recorded."
)

#: Above findings that matter in few steps only.
TAIL_HEADING: Final = "In rare slow steps:"

#: Of the whole report, as `str.split` counts them, and of its sections beside findings and capture.
_MOST_WORDS: Final = 1_500
_MOST_SECTIONS: Final = 4
#: Rows of each table, tried in this order until the report is short enough; before a table gets
#: fewer than 8, the last ones are left out.
_ROWS: Final = ((20, 12, 8), (5, 3, 2, 1))


def report_markdown(report: Report, results: Results) -> str:
    """Return the whole report: for a terminal, a pull request, a chat."""
    below = [capture_markdown(report), _FILES]
    parts = [_head_within(report, _MOST_WORDS - _words_n(below)), *below]
    words_n = _MOST_WORDS - _words_n(parts)
    # First those that were asked for.
    wanted = sorted(report.lead_sections, key=lambda section: not section.optional)[:_MOST_SECTIONS]
    chosen = [section for section in report.lead_sections if section in wanted]
    parts += _sections_within(chosen, results, words_n)
    return "\n\n".join(part for part in parts if part) + "\n"


def _words_n(parts: Sequence[str]) -> int:
    return sum(len(part.split()) for part in parts)


def _head_within(report: Report, words_n: int) -> str:
    """Return the head with as many findings as the words allow, and one at least."""
    heads = (head_markdown(report, most_n) for most_n in range(MOST_SHOWN, 1, -1))
    fits = (head for head in heads if _words_n([head]) <= words_n)
    return next(fits, None) or head_markdown(report, 1)


def _sections_within(sections: Sequence[Section], results: Results, words_n: int) -> list[str]:
    """Return sections with as many rows, and then as many sections, as the words allow."""
    counts = range(len(sections), 0, -1)
    for count, rows_n in (pair for some in _ROWS for pair in product(counts, some)):
        shown = [
            section_markdown(replace(section, rows_n=min(section.rows_n, rows_n)), results)
            for section in sections[:count]
        ]
        if _words_n(shown) <= words_n:
            return shown
    return []


def head_markdown(report: Report, most_n: int = MOST_SHOWN) -> str:
    """Return title, question, answer and the first findings."""
    lines = [answer_markdown(report, markdown_prose), findings_heading(report)]
    reported = report.opportunities
    if any(item.price is not None for item in reported):
        lines.append(NOT_ADDITIVE)
    for number, finding in enumerate(reported[:most_n], 1):
        if finding.severity == TAIL and (number == 1 or reported[number - 2].severity != TAIL):
            lines.append(TAIL_HEADING)
        lines.append(_finding(number, finding))
    if len(reported) > most_n:
        lines.append(f"And {len(reported) - most_n} more in `findings.parquet`.")
    return "\n\n".join(lines)


def answer_markdown(report: Report, prose: Prose) -> str:
    """Return title, question, answer and wall split; `prose` renders names in backticks."""
    title = f"# {report.manifest.title}"
    wall = [prose(line.text) for line in report.wall]
    return "\n\n".join(
        [title, f"**{report.manifest.question}**", *map(prose, report.answer.splitlines()), *wall]
    )


def findings_heading(report: Report) -> str:
    """Return the heading above the findings, with how many there are of each severity."""
    if not report.opportunities:
        return "## Findings\n\nNothing stands out by the rules of this recipe."
    return f"## Findings: {severity_counts(report.opportunities)}"


def capture_markdown(report: Report) -> str:
    """Return the capture's facts, its caveats, and what it could not show."""
    facts = [f"- {label}: {markdown_prose(text)}" for label, text in report.facts]
    parts = ["## Capture", "\n".join(facts)]
    remarks = [
        f"- **{markdown_prose(remark.title)}.** {remark_text(remark, markdown_prose, _fenced)}"
        for remark in report.remarks
    ]
    parts += ["\n".join(remarks)] if remarks else []
    for title, texts in report.notes:
        parts += [title, "\n".join(f"- {markdown_prose(text)}" for text in texts)]
    return "\n\n".join(parts)


def section_markdown(section: Section, results: Results) -> str:
    """Return one table: what it shows, and its first rows."""
    head = [f"## {section.title}", section.shows]
    if why := results.why_empty(section.table):
        return "\n\n".join([*head, markdown_prose(why)])
    frame, fields = results.table(section.table), results.fields(section.table)
    columns, empty = parted_columns(frame, section.columns)
    rows = [
        [_cell(shown, fields[name]) for (shown, _), name in zip(row, columns, strict=True)]
        for row in cells(frame, fields, columns, section.rows_n, section.by, length=_CELL_LENGTH)
    ]
    lines = _aligned(
        [headings(fields, columns), ["---"] * len(columns), *rows],
        [fields[name].numeric for name in columns],
    )
    more = len(frame) - section.rows_n
    reported = more_rows(more, section.by, fields, f"`{section.table}.parquet`")
    note = [f"{reported}."] if more > 0 else []
    note += [f"{unfilled(fields, empty)}."] if empty else []
    return "\n\n".join([*head, "\n".join(lines), *note])


def markdown_prose(text: str) -> str:
    """Render prose for Markdown: names as code, everything else literally."""
    parts = spans(text)
    return "".join(
        _code(shortened(part, NAME_LENGTH))
        if code
        else _plain(part, after_code=index > 0, before_code=index < len(parts) - 1)
        for index, (code, part) in enumerate(parts)
    )


def _finding(number: int, finding: Finding) -> str:
    tables = ", ".join(f"`{table}`" for table in finding.tables)
    details = finding_parts(finding, markdown_prose, _fenced, tables)
    # What belongs to an item stands below its first word.
    indent = " " * len(f"{number}. ")
    label = finding.severity or finding.kind
    head = f"{number}. **{label}**: {markdown_prose(finding.title)}"
    return "\n".join([head, *(f"{indent}- {name}: {text}" for name, text in details)])


def _aligned(rows: list[list[str]], right: list[bool]) -> list[str]:
    """Return the lines of a table whose columns stand below each other in plain text too."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for index, row in enumerate(rows):
        if index == 1:
            # The marks below the headings, as wide as their columns.
            row = ["-" * (n - end) + ":" * end for n, end in zip(widths, right, strict=True)]
        cells_of_row = (
            text.rjust(n) if end else text.ljust(n)
            for text, n, end in zip(row, widths, right, strict=True)
        )
        lines.append("| " + " | ".join(cells_of_row) + " |")
    return lines


def _cell(text: str, field: Field) -> str:
    if field.numeric or field.flag or text == NOT_KNOWN:
        return text
    if field.name in PROSE:
        text = shortened(text, _PROSE_LENGTH)
    # Inside a table even code ends at a bar; a backslash before it is taken away again.
    return _code(text).replace("|", "\\|")


def _code(text: str) -> str:
    body = cleaned(text).replace("`", "'").strip()
    return f"`{body}`" if body else ""


def _fenced(text: str) -> str:
    """Return what is to be copied, unchanged: more backticks than it has together around it."""
    longest_n = max(map(len, _BACKTICKS.findall(text)), default=0)
    space = " " if longest_n else ""
    return f"{'`' * (longest_n + 1)}{space}{text}{space}{'`' * (longest_n + 1)}"


def _plain(text: str, *, after_code: bool, before_code: bool) -> str:
    """Return prose literally: words that Markdown would read otherwise as code."""
    words = cleaned(text).split(" ")
    last = len(words) - 1
    return " ".join(
        _literal(word, beside_code=(after_code and place == 0) or (before_code and place == last))
        for place, word in enumerate(words)
    )


def _literal(word: str, *, beside_code: bool) -> str:
    if _SPECIAL.search(word) is None:
        return word
    if beside_code:
        return _ESCAPED.sub(r"\\\1", word)
    before, inside, after = _WORD.fullmatch(word).groups()  # type: ignore[union-attr]
    if not inside or _SPECIAL.search(before + after):
        before, inside, after = "", word, ""
    return f"{before}{_fenced(inside)}{after}"
