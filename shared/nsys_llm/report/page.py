"""Writes report.html: what the notebook shows as one page, for people without Jupyter.

The page holds plotly.js once, deflated as the figures are, and fetches nothing. Its policy runs two
scripts, known by their hashes: the page's own, and plotly.js, which that one unpacks and adds. It
allows nothing else: neither other scripts nor a network.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Final

from nsys_llm.manifest.declared import Section
from nsys_llm.report.findings import severity_counts
from nsys_llm.report.page_parts import (
    below_finding,
    capture_html,
    contents_html,
    findings_html,
    html_text,
    link_id,
    marked_numbers,
)
from nsys_llm.report.report import EXTRA_HEADING, MORE_HEADING, Report
from nsys_llm.view.results import CONFIG, Results

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
    """Return the page."""
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
