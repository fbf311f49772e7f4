"""Writes report.html: what the notebook shows as one page, for people without Jupyter.

The page holds plotly.js once and fetches nothing. Its policy lets run the two scripts that stand in
it, known by their hashes, and nothing else: neither other scripts nor a network.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
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

#: Draws one figure after the other, so that the page can be read meanwhile; then says so.
_DRAW: Final = """
"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const config = figures.config;
function draw(index) {
  if (index === figures.plots.length) {
    document.documentElement.dataset.drawn = String(index);
    if (location.hash.startsWith("#finding-")) unfold();
    return;
  }
  const plot = figures.plots[index];
  Plotly.newPlot("figure-" + index, plot.data, plot.layout, config).then(function () {
    setTimeout(draw, 0, index + 1);
  });
}
draw(0);
function fit() {
  const plots = [...document.querySelectorAll(".js-plotly-plot")];
  const shown = plots.filter(plot => plot.offsetParent !== null);
  return Promise.all(shown.map(plot => Plotly.Plots.resize(plot)));
}
let waiting;
addEventListener("resize", function () {
  clearTimeout(waiting);
  waiting = setTimeout(fit, 100);
});
const more = document.getElementById("more");
more.addEventListener("toggle", fit);
function show(number) {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const begins = [], ends = [];
    for (const trace of plot.data.filter(one => one.meta === "findings")) {
      trace.customdata.forEach((marked, index) => {
        if (marked !== number) return;
        begins.push(trace.base[index]);
        ends.push(trace.base[index] + trace.x[index]);
      });
    }
    if (!begins.length) continue;
    const low = Math.min(...begins), high = Math.max(...ends), room = (high - low) / 4;
    Plotly.relayout(plot, {"xaxis.range": [low - room, high + room]});
    plot.scrollIntoView();
    return;
  }
}
function unfold() {
  const place = /^#finding-([0-9]+)$/.exec(location.hash);
  if (place !== null) show(Number(place[1]));
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target !== null && more.contains(target)) {
    more.open = true;
    fit().then(() => target.scrollIntoView());
  }
}
addEventListener("hashchange", unfold);
addEventListener("click", function (event) {
  if (event.target.hash && event.target.hash === location.hash) unfold();
});
unfold();
"""

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1280px; margin: 0 auto;
  padding: 0 24px 80px; overflow-wrap: break-word; }
#more { margin-top: 2.2em; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2em; } .question { font-weight: 600; }
summary { cursor: pointer; padding: 2px 0; } details ul { margin: 2px 0 10px; }
.rows { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 3px 9px; border-bottom: 1px solid #e6e6e6; vertical-align: top; }
th { text-align: left; } code { background: #f2f2f2; padding: 0 3px; font-size: 13px; }
a { color: #0060a0; } .figure { min-height: 180px; }
"""


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

    library = get_plotlyjs().replace("</script", "<\\/script")
    plots: list[dict[str, Any]] = []

    def shown(sections: Sequence[Section], tag: str) -> str:
        return "\n".join(_section_html(section, results, plots, tag) for section in sections)

    opening, findings = shown(report.opening_sections, "h2"), _findings_html(report, results)
    for section in report.beside_sections:
        first, rest = below_finding(findings, int(results.table(section.table)["finding"].iloc[0]))
        findings = "\n".join([first, shown([section], "h3"), rest])
    lead = shown(report.lead_sections, "h2")
    others, extras = shown(report.other_sections, "h3"), shown(report.extra_sections, "h3")
    others += f"\n<h2>{EXTRA_HEADING}</h2>\n{extras}" if extras else ""
    figures = json.dumps({"config": CONFIG, "plots": plots}, ensure_ascii=False)
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        f"form-action 'none'; script-src {_hash(library)} {_hash(_DRAW)}"
    )
    title = escape(report.manifest.title)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
{_head_html(report)}
{opening}
{findings}
{contents_html([section.title for section in report.sections])}
<h2>Capture</h2>
{capture_html(report)}
{lead}
<details id="more"><summary><b>{MORE_HEADING}</b></summary>
{others}
</details>
<script type="application/json" id="figures">{_inert(figures)}</script>
<script>{library}</script>
<script>{_DRAW}</script>
</body>
</html>
"""


def _head_html(report: Report) -> str:
    prose = [*report.answer.splitlines(), *(line.text for line in report.wall)]
    texts = "\n".join(f"<p>{html_text(text)}</p>" for text in prose)
    return f"""<h1>{escape(report.manifest.title)}</h1>
<p class="question">{escape(report.manifest.question)}</p>
{texts}"""


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
    for chart in section.charts:
        if results.has_values(section.table, chart):
            parts.append(f'<div class="figure" id="figure-{len(plots)}"></div>')
            plots.append(results.chart(section.table, **chart).plot)
    if section.opening or section.beside:
        return "\n".join(parts)
    rows = results.rows(section.table, section.rows_n, section.columns, by=section.by)
    return "\n".join([*parts, f'<div class="rows">{rows.html}</div>'])


def _inert(text: str) -> str:
    """Return JSON in which nothing ends the element that holds it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
