"""What every recipe answers: two sentences, whole on one screen of a terminal with the findings."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from hostile import hostile_inputs, write_hostile
from rendered import PLOTLY, Markup, read_notebook, shown_by
from results import demo_inputs, read_report

from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.report.findings import CAPTURE
from nsys_llm.run.cli import main
from nsys_llm.testing.demo import write_demo

#: Of a terminal; the last line is the prompt's.
LINES_N = 24
COLUMNS_N = 80
#: An end of a sentence before another; no number and no name has a blank after its full stop.
SENTENCE = re.compile(r"\.\s+(?=[A-Z])")
#: Above the findings: how many there are, or of the overview what their gains are part of.
HEADING = r"^(?:Findings(?: and what a fix could gain \(not additive\))?: \d|could gain .*\d)"
#: Whether two runs are comparable comes before what changed.
SENTENCES_N = {"trace_diff": 3}
#: Elements that viewers which clean the HTML of Markdown keep, those of GitHub and VS Code too.
KEPT = {"a", "b", "code", "details", "li", "p", "span", "summary", "table", "tbody", "td", "th"}
KEPT |= {"tr", "ul"}


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    write_demo(folder, scale=0.1)
    return {"demo": folder, "names": write_hostile(folder / "names")}


def inputs_of(sets, kind, recipe, traces):
    if kind == "demo":
        return demo_inputs(sets["demo"], recipe)
    if kind == "names":
        return hostile_inputs(sets["names"], recipe)
    ranks = traces / "h100_mfu_ranks"
    return [ranks / "before", ranks / "after"] if recipe == "trace_diff" else [ranks / "before"]


@pytest.fixture(params=["demo", "names", "real"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def made(sets, tmp_path_factory):
    """Return what makes a run when it is first asked for: what it printed, and its folder."""
    known = {}

    def run(kind, recipe, traces=None):
        if (kind, recipe) not in known:
            out = tmp_path_factory.mktemp("made") / "out"
            words = ["--mode", "none", "--output", str(out), "--allow-missing-ranks", "--input"]
            printed = io.StringIO()
            with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
                patch.setenv("COLUMNS", str(COLUMNS_N))
                patch.setenv("LINES", str(LINES_N))
                inputs = inputs_of(sets, kind, recipe, traces)
                assert main([recipe, *words, *map(str, inputs)]) == 0
            known[kind, recipe] = printed.getvalue(), out
        return known[kind, recipe]

    return run


@pytest.mark.parametrize("recipe", recipe_names())
def test_the_answer_is_two_sentences_and_fits_one_screen_with_all_else(made, kind, recipe, request):
    traces = request.getfixturevalue("traces") if kind == "real" else None
    shown, out = made(kind, recipe, traces)
    lines = shown.splitlines()
    assert len(lines) < LINES_N
    # Where the results are is a path of the user.
    assert max(map(len, lines[:-1])) <= COLUMNS_N
    report = read_report(out)["report"]
    assert len(SENTENCE.split(report["answer"])) <= SENTENCES_N.get(recipe, 2)
    if any(one["kind"] != CAPTURE for one in report["findings"]):
        assert re.search(HEADING, shown, re.M)
    if kind != "names":
        head = re.split(HEADING, shown, maxsplit=1, flags=re.M)[0]
        assert not head.rstrip().endswith("...")


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_viewer_without_plotly_has_a_readable_table_for_every_figure(made, recipe):
    _, out = made("demo", recipe)
    notebook = read_notebook(out)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            assert set(re.findall(r"<(\w+)", cell.source)) <= KEPT
    figures = [one for one in shown_by(notebook) if PLOTLY in one]
    # The overview's are those of its lead sections; the recipes' notebooks have the others.
    assert len(figures) >= (2 if recipe == "llm_overview" else 5)
    for shown in figures:
        table = Markup(shown["text/html"])
        headings = [text for text, _ in table.headings]
        assert len(set(headings)) == len(headings) >= 2
        assert 1 <= len(table.rows) <= 10 + 1
        # What is behind it is plain: neither scripts nor pictures, nor anything from elsewhere.
        assert not re.search(r"<(?!/?(table|thead|tbody|tr|th|td|p|code)\b)", shown["text/html"])
