"""What every recipe answers: two sentences, whole on one screen of a terminal with the findings."""

from __future__ import annotations

import re
from itertools import product

import pytest
from effort import nightly_but
from rendered import PLOTLY, Markup, known_to_plotly, read_notebook, shown_by
from results import read_report
from shared_runs import COLUMNS_N, HOSTILE_IN_CI, LINES_N, whole_run

from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.report.findings import CAPTURE

#: An end of a sentence before another; no number and no name has a blank after its full stop.
SENTENCE = re.compile(r"\.\s+(?=[A-Z])")
#: Above the findings: how many there are, or of the overview what their gains are part of.
HEADING = r"^(?:Findings(?: and what a fix could gain \(not additive\))?: \d|could gain .*\d)"
#: Whether two runs are comparable comes before what changed.
SENTENCES_N = {"trace_diff": 3}
#: Elements that viewers which clean the HTML of Markdown keep, those of GitHub and VS Code too.
KEPT = {"a", "b", "code", "details", "li", "p", "span", "summary", "table", "tbody", "td", "th"}
KEPT |= {"tr", "ul"}
#: Figures of notebooks that have fewer than five.
FIGURES_N = {"llm_overview": 2, "comm_stats": 1, "roofline": 1, "trace_diff": 2}


def real_run(recipe, traces, folder):
    ranks = traces / "h100_mfu_ranks"
    sides = ("before", "after") if recipe == "trace_diff" else ("before",)
    return whole_run(recipe, [ranks / side for side in sides], folder / "out"), folder / "out"


CASES = [*product(("demo", "names", "real"), recipe_names())]


@pytest.mark.parametrize(
    ("kind", "recipe"),
    nightly_but(
        CASES,
        [("demo", name) for name in recipe_names()] + [("names", name) for name in HOSTILE_IN_CI],
    ),
)
def test_the_answer_is_two_sentences_and_fits_one_screen_with_all_else(
    shared_runs, request, tmp_path, kind, recipe
):
    if kind == "real":
        ended, out = real_run(recipe, request.getfixturevalue("traces"), tmp_path)
    else:
        ended, out = shared_runs.run(kind, recipe)
    assert ended.code == 0
    lines = ended.printed
    shown = "\n".join(lines)
    assert len(lines) < LINES_N
    # Where the results are is a path of the user.
    assert max(map(len, lines[:-1])) <= COLUMNS_N
    report = read_report(out)["report"]
    assert len(SENTENCE.split(report["answer"])) <= SENTENCES_N.get(recipe, 2)
    if any(finding["kind"] != CAPTURE for finding in report["findings"]):
        assert re.search(HEADING, shown, re.M)
    if kind != "names":
        head = re.split(HEADING, shown, maxsplit=1, flags=re.M)[0]
        assert not head.rstrip().endswith("...")


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_viewer_without_plotly_has_a_readable_table_for_every_figure(shared_runs, recipe):
    _, out = shared_runs.run("demo", recipe)
    notebook = read_notebook(out)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            assert set(re.findall(r"<(\w+)", cell.source)) <= KEPT
    figures = [output for output in shown_by(notebook) if PLOTLY in output]
    # The overview's are those of its lead sections; the recipes' notebooks have the others.
    assert len(figures) >= FIGURES_N.get(recipe, 5)
    for shown in figures:
        known_to_plotly({name: shown[PLOTLY][name] for name in ("data", "layout")})
        table = Markup(shown["text/html"])
        headings = [text for text, _ in table.headings]
        assert len(set(headings)) == len(headings) >= 2
        assert 1 <= len(table.rows) <= 10 + 1
        # What is behind it is plain: neither scripts nor pictures, nor anything from elsewhere.
        assert not re.search(r"<(?!/?(table|thead|tbody|tr|th|td|p|code)\b)", shown["text/html"])
