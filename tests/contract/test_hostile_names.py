"""Names out of a trace are data: no name becomes an element, a link, a formula or a heading."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from command_line import run
from rendered import (
    HOSTILE_NAMES,
    INVISIBLE,
    PLOTLY,
    Markup,
    markdown_cells,
    markdown_text,
    markdown_tokens,
    read_notebook,
    shown_by,
    strings_in,
)

from nsys_llm.manifest import load_manifest
from nsys_llm.trace_builder import TraceBuilder
from nsys_llm.view.results import Results

MANIFEST = load_manifest("llm_hotspots")

#: What our Markdown is made of: no raw HTML, no images.
_BLOCKS = {
    f"{name}_{end}"
    for name in (
        "heading",
        "paragraph",
        "ordered_list",
        "bullet_list",
        "list_item",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "strong",
    )
    for end in ("open", "close")
} | {"inline", "text", "text_special", "softbreak", "code_inline"}


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory):
    """A run on ranks in which every name that a trace can bring is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "in").mkdir()
    for rank, name in enumerate(("rank0 <b>`$x$|[a](b)&amp;", 'rank1 "&#60;i&#62;')):
        builder = TraceBuilder(hostname=f"host<b>`|${rank}$", gpu_name="GPU <b>`|[a](b)$x$\n# h")
        builder.process(pid=100 + rank, name="<b>`python`")
        for index, kernel in enumerate(HOSTILE_NAMES):
            # The first takes more than half: 1000 of 1000 + 17 * 50.
            start_ns, long_ns = 2000 * index, 1000 if index == rank else 50
            launch = (start_ns, start_ns + 1)
            builder.kernel(kernel, start_ns=start_ns, duration_ns=long_ns, launch=launch)
        builder.write_sqlite(folder / "in" / f"{name}.sqlite")
    broken = "rank2 `<img src=x>|$y$ www.evil.example\n\n# head\u202e\x1b[31m.sqlite"
    (folder / "in" / broken).write_bytes(b"no database")
    words = ["--mode", "none", "--allow-missing-ranks", "--output", folder / "out"]
    ended = run(*words, "--input", folder / "in")
    assert ended.code == 0, ended.said
    return folder / "out", ended.printed


@pytest.fixture(scope="module")
def notebook(hostile_run):
    return read_notebook(hostile_run[0])


@pytest.fixture(scope="module")
def report(hostile_run):
    return (hostile_run[0] / "report.md").read_text("utf-8")


def test_the_hostile_run_has_findings_that_name_hostile_kernels(hostile_run):
    findings = pd.read_parquet(hostile_run[0] / "findings.parquet")
    # 1000 of 2 * (1000 + 17 * 50): each of the two takes (1000 + 50) / 3700 = 28.4 %.
    assert set(findings["name"].dropna()) >= set(HOSTILE_NAMES[:2])


def test_html_outputs_hold_only_the_elements_of_tables_and_glossaries(notebook):
    pages = [Markup(data["text/html"]) for data in shown_by(notebook)]
    assert len(pages) > len(MANIFEST.sections) // 2
    assert [problem for page in pages for problem in page.problems] == []


def test_html_shows_each_name_as_it_is_and_long_ones_whole_on_hover(hostile_run):
    page = Markup(Results(hostile_run[0]).rows("kernels", 50, ["name"]).html)
    names = [row[0] for row in page.rows if len(row) == 1]
    plain = {name for name in HOSTILE_NAMES if len(name) < 60 and name.isprintable()}
    assert len(plain) >= 10
    assert plain <= set(names)
    assert HOSTILE_NAMES[-1] in page.titles


def test_nothing_that_is_shown_hides_or_turns_text_around(notebook, report, hostile_run):
    texts = [*strings_in([notebook.cells]), report, *hostile_run[1]]
    assert [text[:200] for text in texts if INVISIBLE.search(text)] == []


def test_labels_of_figures_hold_no_element_and_no_formula(notebook):
    labels = [text for data in shown_by(notebook) for text in strings_in(data.get(PLOTLY))]
    assert any("script" in label for label in labels)
    for label in labels:
        assert re.findall(r"<(?!br>|/?extra>)", label) == [], label
        # Plotly gives to MathJax what stands between two dollars.
        assert label.count("$") < 2, label


def test_plain_text_outputs_have_one_line_a_row(notebook):
    for data in shown_by(notebook):
        rows_n = data["text/plain"].count("\n")
        assert rows_n <= 25
        assert "\r" not in data["text/plain"]


def test_markdown_cells_leave_no_markup_of_a_name(notebook):
    for text in markdown_cells(notebook):
        links = []
        for token in markdown_tokens(text):
            if token.type == "link_open":
                links.append(token.attrs["href"])
            elif token.type == "html_block":
                assert Markup(token.content).problems == []
            elif token.type == "html_inline":
                # Names are code whose every special character is a reference.
                assert re.fullmatch(r'</?code>|<code title="[-\w &#;]*">', token.content)
            elif token.type != "link_close":
                assert token.type in _BLOCKS, token
        assert all(link.startswith("#") and "evil" not in link for link in links)
        # JupyterLab takes formulas out before it reads the Markdown.
        assert re.findall(r"(?<!\\)\$|\\\\[(\[]", text) == []


def test_names_in_markdown_cells_are_shown_as_they_are(notebook):
    head = markdown_text(markdown_cells(notebook)[0])
    assert HOSTILE_NAMES[0] in head
    assert HOSTILE_NAMES[1] in head


def test_report_md_leaves_no_markup_of_a_name(report, hostile_run):
    results = Results(hostile_run[0])
    tokens = markdown_tokens(report)
    assert {token.type for token in tokens} <= _BLOCKS
    headings = [
        tokens[index + 1].content
        for index, token in enumerate(tokens)
        if token.type == "heading_open"
    ]
    ours = {
        section.title
        for section in MANIFEST.sections
        if section.in_report and (not section.optional or len(results.table(section.table)))
    }
    assert {text for text in headings if not text.startswith("Findings: ")} == {
        MANIFEST.title,
        "Capture",
        *ours,
    }


def test_report_md_has_no_formula_and_no_bare_address_outside_code(report):
    prose = re.sub(r"(`+)[^`].*?\1", "", report)
    assert re.findall(r"(?<!\\)\$|https?://|www\.", prose) == []


def test_report_md_shows_all_cells_of_each_row_whatever_the_names_hold(report):
    tables = re.findall(r"(?:^\|.*\n)+", report, re.M)
    assert len(tables) >= 4
    for table in tables:
        widths, width = [], 0
        for token in markdown_tokens(table):
            width += token.type in ("td_open", "th_open")
            if token.type == "tr_close":
                widths.append(width)
                width = 0
        # A renderer fills rows up and cuts them off, so that bars are counted too.
        bars = [len(re.findall(r"(?<!\\)\|", line)) - 1 for line in table.splitlines()]
        assert len(set(widths)) == 1
        assert set(bars) == set(widths), table
    shown = {token.content for token in markdown_tokens(report) if token.type == "code_inline"}
    for name in HOSTILE_NAMES:
        clean = re.sub(r" +", " ", INVISIBLE.sub(" ", name).replace("`", "'").replace("\n", " "))
        if len(clean) < 60 and clean != "-":
            assert clean.strip() in {re.sub(" +", " ", one).strip() for one in shown}


def test_the_terminal_shows_no_name_that_steers_it(hostile_run):
    assert hostile_run[1]
    assert all(line.isprintable() for line in hostile_run[1])
