"""Writes report.html: what the notebook shows as one page, for people without Jupyter.

Findings, capture and links are HTML that both show. Every text in it goes through `html_text`, so
that neither HTML nor the Markdown and the formulas of a notebook find anything in it.

The page holds plotly.js once, deflated as the figures are, and fetches nothing. Its policy runs two
scripts, known by their hashes: the page's own, and plotly.js, which that one unpacks and adds. It
allows nothing else: neither other scripts nor a network.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Final

from nsys_llm.manifest.declared import Section
from nsys_llm.report.findings import Finding, severity_counts
from nsys_llm.report.report import (
    EXTRA_HEADING,
    MORE_HEADING,
    MOST_SHOWN,
    NOT_ADDITIVE,
    Report,
    finding_parts,
    remark_text,
)
from nsys_llm.view.results import CONFIG, Results
from nsys_llm.view.text import cleaned, shortened, spans

PAGE_NAME: Final = "report.html"

#: Shown instead of figures.
_UNDRAWN: Final = (
    "Figures need a browser with scripts and DecompressionStream (Chrome 80, Firefox 113, Safari "
    "16.4 or later). All texts and tables are here without them; analysis.ipynb has the figures."
)
#: Marks the stretches of one name in the figures ahead of which it stands.
_SEARCH: Final = """<p class="search"><label>Find a kernel in the timeline:
<input type="search" id="name" list="names" placeholder="part of its name"></label>
<datalist id="names"></datalist> <span id="named" role="status"></span></p>"""


def write_page(folder: Path, report: Report, results: Results) -> None:
    """Write the page.

    Raises:
        ImportError: plotly is not installed; nothing was written.
    """
    (folder / PAGE_NAME).write_text(page_html(report, results), encoding="utf-8")


def page_html(report: Report, results: Results) -> str:
    """Return the page.

    Raises:
        ImportError: plotly is not installed.
    """
    from plotly.offline import get_plotlyjs

    library, style, script = get_plotlyjs(), _data("page.css"), _data("page.js")
    plots: list[dict[str, Any]] = []

    def shown(sections: Sequence[Section], tag: str) -> str:
        return "\n".join(_section_html(section, results, plots, tag) for section in sections)

    findings = _findings_html(report, results)
    for section in report.beside_sections:
        first, rest = below_finding(findings, int(results.table(section.table)["finding"].iloc[0]))
        findings = "\n".join([first, shown([section], "h3"), rest])
    opening, lead = shown(report.opening_sections, "h2"), shown(report.lead_sections, "h2")
    others, extras = shown(report.other_sections, "h3"), shown(report.extra_sections, "h3")
    others += f"\n<h2>{EXTRA_HEADING}</h2>\n{extras}" if extras else ""
    figures = json.dumps({"config": CONFIG, "plots": plots}, ensure_ascii=False)
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        f"form-action 'none'; script-src {_hash(library)} {_hash(script)}"
    )
    title, said = escape(report.manifest.title), report.answer.splitlines()
    said += [line.text for line in report.wall]
    texts = "\n".join(f"<p>{html_text(text)}</p>" for text in said)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p class="question">{escape(report.manifest.question)}</p>
{texts}
{findings}
<noscript><p class="notice">{_UNDRAWN}</p></noscript>
<p class="notice" id="undrawn" hidden>{_UNDRAWN}</p>
{opening}
{contents_html([section.title for section in report.sections])}
<h2>Capture</h2>
{capture_html(report)}
{lead}
<details id="more"><summary><b>{MORE_HEADING}</b></summary>
{others}
</details>
{_packed("figures", figures)}
{_packed("plotly", library)}
<script>{script}</script>
</body>
</html>
"""


def _findings_html(report: Report, results: Results) -> str:
    links = {section.table: section.title for section in reversed(report.sections)}
    places = {number: f"finding-{number}" for number in marked_numbers(report, results)}
    findings = report.opportunities
    reported = (
        findings_html(findings, links, places)
        or "<p>Nothing stands out by the rules of this recipe.</p>"
    )
    heading = f"Findings: {severity_counts(findings)}" if findings else "Findings"
    return f"<h2>{heading}</h2>\n{reported}"


def _section_html(section: Section, results: Results, plots: list[dict[str, Any]], tag: str) -> str:
    """Return one section; its figures are added to `plots`, in whose order they are drawn."""
    parts = [f'<{tag} id="{escape(link_id(section.title))}">{escape(section.title)}</{tag}>']
    parts.append(f"<p>{html_text(section.shows)}</p>")
    parts += [_SEARCH] * section.opening
    for chart in section.charts:
        if results.has_values(section.table, chart):
            parts.append(f'<div class="figure" id="figure-{len(plots)}"></div>')
            plots.append(results.chart(section.table, **chart).plot)
    if section.opening or section.beside:
        return "\n".join(parts)
    rows = results.rows(section.table, section.rows_n, section.columns, by=section.by)
    return "\n".join([*parts, f'<div class="rows">{rows.html}</div>'])


def _data(name: str) -> str:
    return resources.files("nsys_llm.report").joinpath(f"data/{name}").read_text("utf-8")


def _packed(name: str, text: str) -> str:
    """Return an element of deflated text; nothing in it can end the element."""
    packed = b64encode(zlib.compress(text.encode())).decode()
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>'


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


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
    findings: Sequence[Finding], links: Mapping[str, str], places: Mapping[int, str]
) -> str:
    """Return findings that unfold, the first severe ones unfolded. No line of it is empty.

    Args:
        links: By table, the heading of the section that shows it.
        places: By number of a finding, the name of what shows where it is.
    """
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
