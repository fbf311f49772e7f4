"""What reports and notebooks show, taken apart: HTML elements, Markdown tokens, every string."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
from markdown_it import MarkdownIt
from markdown_it.token import Token

PLOTLY = "application/vnd.plotly.v1+json"


def known_to_plotly(plot: dict[str, Any]) -> dict[str, Any]:
    """Return a figure if plotly has all of its properties, with these very values."""
    stored = json.loads(json.dumps(plot, allow_nan=False))
    figure = go.Figure(stored)
    figure.layout.template = None
    stored["layout"] = {name: value for name, value in stored["layout"].items() if value != []}
    assert json.loads(figure.to_json()) == stored
    return plot


#: Names that mean something to HTML, Markdown, TeX, a terminal, a spreadsheet or a reader's eye.
HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "$tex$ and $$more$$",
    "</td></table><img src=x onerror=alert(1)>",
    "`back``ticks`",
    "|bars\\||",
    "\"quotes\" and ' title='x",
    "new\nline\r\n\n# heading",
    "[links](http://evil.example)",
    "![img](http://evil.example/i.png)",
    "http://evil.example/",
    "&amp;&lt;b&gt;&#60;i&#62;",
    "bidi \u202eabc\u2066x\u2069\u200e\u200f\u061c",
    "\x1b[31mr\x00ed\x07",
    "*a*_b_~~c~~",
    "a backslash at the end\\",
    "é中文",
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "$\\href{javascript:alert(1)}{x}$ \\(y\\) \\begin{align}z\\end{align}",
    "%{x} %{customdata} {{7*7}} <extra></extra>",
    "=HYPERLINK(0) @SUM(A1) +1 |cmd",
    "A" * 100_000,
    "-",
    "2000 " + '<b>&`|$"' * 250,
)

#: Everything that may turn text around, hide it, or steer a terminal; newline apart.
INVISIBLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_ELEMENTS = frozenset(
    [
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "p",
        "details",
        "summary",
        "code",
        "span",
        "b",
        "ul",
        "li",
        "a",
    ]
)
_LINK = re.compile(r"#[\w,:-]+")
_BADGE = re.compile(r"background-color:#\w{6};color:#\w{6};padding:1px 6px;border-radius:3px")
_STYLES = frozenset(
    {
        "text-align:right",
        "text-align:right;white-space:nowrap",
        "text-align:left",
        "text-align:left;white-space:nowrap",
    }
)


class Markup(HTMLParser):
    """What a browser finds in a piece of HTML.

    Attributes:
        problems: What is not of the few inert kinds that tables and glossaries are made of.
        titles: What appears on hover.
        rows: Text of each cell, by row.
        headings: (text, text on hover) of each heading of a column.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.titles: list[str] = []
        self.rows: list[list[str]] = []
        self.headings: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.problems += [f"{tag} is never closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _ELEMENTS:
            self.problems.append(f"element {tag}")
        for name, value in attrs:
            if name == "title":
                self.titles.append(value or "")
            elif not _is_inert(tag, name, value or ""):
                self.problems.append(f"attribute {name}={value}")
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")
        elif tag == "th":
            self.headings.append(("", dict(attrs).get("title")))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"{tag} is closed out of turn")

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self._open:
            self.rows[-1][-1] += data
        elif "th" in self._open:
            text, title = self.headings[-1]
            self.headings[-1] = (text + data, title)

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"comment {data}")

    def handle_decl(self, decl: str) -> None:
        self.problems.append(f"declaration {decl}")

    unknown_decl = handle_decl
    handle_pi = handle_decl


def _is_inert(tag: str, name: str, value: str) -> bool:
    """Tell whether an attribute is one of those that we write ourselves."""
    if name == "href":
        return tag == "a" and _LINK.fullmatch(value) is not None
    if name == "open":
        return tag == "details"
    return name == "style" and (value in _STYLES or _BADGE.fullmatch(value) is not None)


def markdown_tokens(text: str) -> list[Token]:
    """Return what a Markdown renderer finds, blocks and what is in them in one row."""
    blocks = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [token for block in blocks for token in (block, *(block.children or ()))]


def markdown_text(text: str) -> str:
    """Return what a reader of rendered Markdown sees: no marks, code and prose alike."""
    shown = []
    for token in markdown_tokens(text):
        if token.type == "html_block":
            shown.append(Markup(token.content).text)
        elif token.type in ("text", "code_inline", "text_special"):
            shown.append(token.content)
        elif token.type in ("softbreak", "paragraph_close", "heading_close", "td_close"):
            shown.append("\n")
    return "".join(shown)


def read_notebook(folder: Path) -> Any:
    """Return the notebook of a result, after nbformat has checked it."""
    notebook = nbformat.read(folder / "analysis.ipynb", as_version=4)
    nbformat.validate(notebook)
    return notebook


def markdown_cells(notebook: Any) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def shown_by(notebook: Any) -> list[Any]:
    return [output.data for cell in notebook.cells for output in cell.get("outputs", ())]


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from strings_in(part)


def record_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / f"{folder.name}.nsys-analysis").read_text("utf-8"))
