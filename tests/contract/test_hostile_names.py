"""Names out of a trace are data: no name becomes an element, a link, a formula or a heading."""

from __future__ import annotations

import csv
import re

import pandas as pd
import pytest
from effort import nightly_but
from rendered import (
    HOSTILE_NAMES,
    INVISIBLE,
    PLOTLY,
    Markup,
    markdown_cells,
    markdown_tokens,
    read_notebook,
    shown_by,
    strings_in,
)
from results import analyse
from shared_runs import HOSTILE_IN_CI

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.page import _SEARCH, _UNDRAWN
from nsys_llm.view.results import Results

csv.field_size_limit(1_000_000)

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


#: Recipes whose findings name no kernel of these ranks: what they take is too short for a gain.
#: How findings show names is tested in tests/report, tables and figures here.
UNNAMED = {"comm_stats", "roofline", "serving_steps", "step_budget", "tail_stats", "trace_diff"}


@pytest.fixture(scope="module")
def hostile_set(shared_runs):
    return shared_runs.ranks("names")


@pytest.fixture(scope="module", params=nightly_but(recipe_names(), HOSTILE_IN_CI))
def recipe(request):
    return request.param


@pytest.fixture(scope="module")
def hostile_run(shared_runs, recipe):
    """A run on ranks in which every name that a trace can bring is hostile."""
    ended, out = shared_runs.run("names", recipe)
    assert ended.code == 0, ended.said
    return out, [*ended.printed, *ended.said]


@pytest.fixture(scope="module")
def notebook(hostile_run):
    return read_notebook(hostile_run[0])


@pytest.fixture(scope="module")
def report(hostile_run):
    return (hostile_run[0] / "report.md").read_text("utf-8")


def test_the_hostile_run_has_findings_that_name_hostile_kernels(hostile_run, recipe):
    findings = pd.read_parquet(hostile_run[0] / "findings.parquet")
    text = " ".join([*findings["title"], *findings["details"]])
    assert ("alert(1)" in text) == (recipe not in UNNAMED)


def test_html_outputs_hold_only_the_elements_of_tables_and_glossaries(notebook):
    pages = [Markup(data["text/html"]) for data in shown_by(notebook)]
    assert len(pages) >= 8
    assert [problem for page in pages for problem in page.problems] == []


def test_html_shows_each_name_as_it_is_and_long_ones_whole_on_hover(hostile_set, tmp_path):
    out = analyse(tmp_path / "out", hostile_set, options=["--allow-missing-ranks"])
    page = Markup(Results(out).rows("kernels", 50, ["name"]).html)
    names = [row[0] for row in page.rows if len(row) == 1]
    plain = {name for name in HOSTILE_NAMES if len(name) < 60 and name.isprintable()}
    assert len(plain) >= 10
    assert plain <= set(names)
    assert HOSTILE_NAMES[-1] in page.titles


def test_nothing_that_is_shown_hides_or_turns_text_around(notebook, report, hostile_run):
    texts = [*strings_in([notebook.cells]), report, *hostile_run[1]]
    assert [text[:200] for text in texts if INVISIBLE.search(text)] == []


def test_labels_of_figures_hold_no_element_and_no_formula(notebook, recipe):
    labels = [text for data in shown_by(notebook) for text in strings_in(data.get(PLOTLY))]
    # The overview's own figures have titles of findings, ranks and classes: no name of a kernel;
    # those of step_budget what a change gains, which clocks that are not aligned do not tell; these
    # ranks have no step of a server.
    nameless = ("comm_stats", "llm_overview", "roofline", "serving_steps", "step_budget")
    assert recipe in nameless or any("script" in label for label in labels)
    for label in labels:
        assert re.findall(r"<(?!br>|/?extra>)", label) == [], label
        # Plotly gives to MathJax what stands between two dollars.
        assert label.count("$") < 2, label


def test_plain_text_outputs_have_one_line_a_row(notebook):
    for data in shown_by(notebook):
        rows_n = data["text/plain"].count("\n")
        assert rows_n <= 30
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


def test_report_md_leaves_no_markup_of_a_name(report, hostile_run, recipe):
    results, manifest = Results(hostile_run[0]), load_manifest(recipe)
    tokens = markdown_tokens(report)
    assert {token.type for token in tokens} <= _BLOCKS
    headings = [
        tokens[index + 1].content
        for index, token in enumerate(tokens)
        if token.type == "heading_open"
    ]
    ours = {
        section.title
        for section in manifest.sections
        if section.lead and (not section.optional or len(results.table(section.table)))
    }
    sections = {text for text in headings if not text.startswith("Findings")}
    assert {manifest.title, "Capture"} <= sections <= {manifest.title, "Capture", *ours}


def test_report_md_shows_all_cells_of_each_row_whatever_the_names_hold(report):
    tables = re.findall(r"(?:^\|.*\n)+", report, re.M)
    assert tables or "No rows" in report
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


def test_the_terminal_shows_no_name_that_steers_it(hostile_run):
    assert hostile_run[1]
    assert all(line.isprintable() for line in hostile_run[1])
    assert max(map(len, hostile_run[1])) < 1_000


def test_no_output_that_is_read_grows_with_a_name_of_100_kb(hostile_run):
    folder, _ = hostile_run
    # Whole names stand on hover, once or twice a table, and in the parquet files.
    assert (folder / "report.md").stat().st_size < 150_000
    assert (folder / "analysis.ipynb").stat().st_size < 3_000_000


def test_the_page_has_no_element_attribute_or_script_of_a_name(hostile_run):
    page = (hostile_run[0] / "report.html").read_text("utf-8")
    scripts = re.findall(r"<script([^>]*)>", page)
    packed = ' type="application/octet-stream" id='
    assert scripts == [f'{packed}"figures"', f'{packed}"plotly"', ""]
    body = page.partition("<body>")[2].partition("<script")[0]
    # The page's own frames of figures and tables apart.
    body = re.sub(
        r'<div class="[a-z]+"( id="figure-\d+")?>|</div>|<h[123][^>]*>|</h[123]>', "", body
    )
    body = body.replace('<details id="more">', "<details>")
    body = body.replace('<p class="question">', "<p>")
    body = body.replace(_SEARCH, "").replace('<p class="notice" id="undrawn" hidden>', "<p>")
    body = body.replace(f'<noscript><p class="notice">{_UNDRAWN}</p></noscript>', "")
    assert Markup(body).problems == []


def test_no_cell_of_a_csv_is_a_formula(hostile_run):
    starts, cells_n = ("=", "+", "-", "@", "\t", "\r"), 0
    for path in sorted(hostile_run[0].glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            for row in csv.reader(lines):
                cells_n += len(row)
                for cell in row:
                    assert not cell.startswith(starts) or re.fullmatch(r"-[\d.e+-]+", cell), cell
    assert cells_n > 100
