"""What the notebook and the HTML page have in common: findings, capture and links as HTML.

Every text goes through `html_text`, so that neither HTML nor the Markdown and the formulas of a
notebook find anything in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.report import MOST_SHOWN, NOT_ADDITIVE, Report, finding_parts, remark_text
from nsys_llm.view.results import Results
from nsys_llm.view.text import cleaned, shortened, spans

#: Names in prose are cut to this length; the whole name appears on hover.
NAME_LENGTH: Final = 72

#: What means something to HTML or Markdown; and what a notebook takes for a formula, which it looks
#: for in the finished page too, everywhere but in code.
_SPECIAL: Final = re.compile(r"[#&<>\"'`*_~{}\[\]|]|[$\\]+")
_FORMULA: Final = frozenset("$\\")
#: So many findings are unfolded, if they are severe: figures stand below them.
_UNFOLDED: Final = 1
_SEVERE: Final = frozenset({"high", "medium"})
#: White on dark, black on light: each pair has a contrast of at least 4.5 to 1.
_BADGES: Final = {
    "high": "background-color:#b34700;color:#ffffff",
    "medium": "background-color:#e69f00;color:#000000",
    "low": "background-color:#56b4e9;color:#000000",
    "tail": "background-color:#cc79a7;color:#000000",
}
_PLAIN_BADGE: Final = "background-color:#e6e6e6;color:#000000"


def link_id(heading: str) -> str:
    """Return the name by which a heading is linked, as JupyterLab makes it."""
    return heading.replace(" ", "-")


def html_text(prose: str) -> str:
    """Render prose as HTML, and as what a notebook's Markdown leaves alone; names become code."""
    return "".join(_code(part) if code else _plain(part) for code, part in spans(prose))


def marked_numbers(report: Report, results: Results) -> list[int]:
    """Return the findings, by number, that figures ahead of them mark."""
    tables = {section.table: section.charts for section in report.opening_sections}
    numbers = {
        int(number)
        for table, charts in tables.items()
        for column in {chart["number"] for chart in charts if "number" in chart}
        for number in results.table(table)[column].dropna().tolist()
    }
    return sorted(numbers)


def below_finding(html: str, number: int) -> tuple[str, str]:
    """Part findings as HTML below one of them, by its number; below the last for a later one."""
    ends = [match.end() for match in re.finditer("</details>", html)]
    at = ends[min(number, len(ends)) - 1] if ends else len(html)
    return html[:at], html[at:]


def findings_html(
    findings: Sequence[Finding], links: Mapping[str, str], places: Mapping[int, str] | None = None
) -> str:
    """Return findings that unfold, the first severe ones unfolded. No line of it is empty.

    Args:
        links: By table, the heading of the section that shows it.
        places: By number of a finding, the name of what shows where it is.
    """
    places = places or {}
    shown = enumerate(findings[:MOST_SHOWN], 1)
    lines = [_finding(number, finding, links, places.get(number)) for number, finding in shown]
    if any(finding.price is not None for finding in findings):
        lines.insert(0, f"<p>{NOT_ADDITIVE}</p>")
    if len(findings) > MOST_SHOWN:
        lines.append(f"<p>And {len(findings) - MOST_SHOWN} more in findings.parquet.</p>")
    return "\n".join(lines)


def _finding(number: int, finding: Finding, links: Mapping[str, str], place: str | None) -> str:
    opened = " open" if number <= _UNFOLDED and finding.severity in _SEVERE else ""
    label = finding.severity or finding.kind
    style = f"{_BADGES.get(label, _PLAIN_BADGE)};padding:1px 6px;border-radius:3px"
    badge = f'<span style="{style}">{label}</span>'
    tables = ", ".join(_table_link(table, links) for table in finding.tables)
    link = "" if place is None else f'<a href="#{_attribute(place)}">in the timeline</a>'
    details = finding_parts(finding, html_text, _whole_code, tables, link)
    items = "".join(f"<li><b>{label}:</b> {text}</li>" for label, text in details)
    head = f"<summary>{number}. {badge} {html_text(finding.title)}</summary>"
    return f"<details{opened}>{head}<ul>{items}</ul></details>"


def _table_link(table: str, links: Mapping[str, str]) -> str:
    if table not in links:
        return f"<code>{_plain(table)}</code>"
    return f'<a href="#{_attribute(link_id(links[table]))}">{_plain(table)}</a>'


def contents_html(titles: Sequence[str]) -> str:
    """Return links to sections, in order."""
    links = (f'<a href="#{_attribute(link_id(title))}">{_plain(title)}</a>' for title in titles)
    return f"<p><b>Sections:</b> {' · '.join(links)}</p>"


def capture_html(report: Report) -> str:
    """Return the capture's facts, its caveats, and what it could not show."""
    rows = "".join(
        f"<tr><th>{_plain(label)}</th><td>{html_text(text)}</td></tr>"
        for label, text in report.facts
    )
    parts = [f"<table><tbody>{rows}</tbody></table>"]
    remarks = [
        f"<li><b>{html_text(remark.title)}.</b> {remark_text(remark, html_text, _whole_code)}</li>"
        for remark in report.remarks
    ]
    parts += [f"<ul>{''.join(remarks)}</ul>"] if remarks else []
    for title, texts in report.notes:
        items = "".join(f"<li>{html_text(text)}</li>" for text in texts)
        parts.append(f"<p>{title}</p><ul>{items}</ul>")
    return "\n".join(parts)


def _whole_code(text: str) -> str:
    """Return what is to be copied: whole, and no name out of a trace."""
    return f"<code>{_attribute(text)}</code>"


def _code(name: str) -> str:
    short = shortened(name, NAME_LENGTH)
    title = f' title="{_attribute(cleaned(name))}"' if short != name else ""
    return f"<code{title}>{_attribute(short)}</code>"


def _plain(text: str) -> str:
    return _SPECIAL.sub(_reference, cleaned(text))


def _reference(match: re.Match[str]) -> str:
    shown = _attribute(match[0])
    return f"<code>{shown}</code>" if _FORMULA.intersection(match[0]) else shown


def _attribute(text: str) -> str:
    """Return text of which a reader sees the same, and a parser nothing but letters and blanks."""
    return "".join(item if item.isalnum() or item in " -" else f"&#{ord(item)};" for item in text)
