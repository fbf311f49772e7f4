"""The notebook: complete when it is opened, and the same again when it is run without us."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from command_line import run
from nbclient import NotebookClient
from rendered import (
    markdown_text,
    read_notebook,
    record_of,
    strings_in,
)
from results import analyse, read_report
from small_ranks import write_small_ranks

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.report import MOST_SHOWN

pytestmark = pytest.mark.drawn

MANIFEST = load_manifest("llm_hotspots")

#: Makes a kernel in which these packages are not installed.
_BARE = """\
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("nsys_llm", "nsys_recipe", "nbformat"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
"""
_PROBE = """\
missing = []
for name in ("nsys_llm", "nbformat"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        missing.append(name)
missing"""


@pytest.fixture(scope="module")
def demo_run(shared_runs):
    return shared_runs.run("demo", "llm_hotspots")[1]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    return analyse(folder / "out", write_small_ranks(folder / "ranks"))


@pytest.fixture(params=["small", "demo"])
def result(request):
    """The result of a run, which no test changes."""
    return request.getfixturevalue(f"{request.param}_run")


def run_again(notebook, folder: Path, scratch: Path):
    """Return the notebook as a kernel in `folder` makes it, to which nothing of ours is known."""
    (scratch / "bare").mkdir(parents=True)
    (scratch / "bare" / "sitecustomize.py").write_text(_BARE, encoding="utf-8")
    fresh = nbformat.from_dict(notebook)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    fresh.cells.append(nbformat.v4.new_code_cell(_PROBE))
    client = NotebookClient(
        fresh, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    env = {**os.environ, "PYTHONPATH": str(scratch / "bare"), "IPYTHONDIR": str(scratch / "ipy")}
    client.execute(env=env)
    assert fresh.cells.pop().outputs[0].data["text/plain"] == "['nsys_llm', 'nbformat']"
    return fresh


def outputs_of(notebook):
    return [
        [(output.output_type, dict(output.data)) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.slow
def test_nbformat_accepts_the_notebook_and_its_cells_are_numbered(result):
    notebook = read_notebook(result)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


def test_the_first_cell_holds_question_answer_and_every_finding(result):
    head, report = read_notebook(result).cells[0], read_report(result)["report"]
    assert head.cell_type == "markdown"
    shown = markdown_text(head.source)
    assert shown.startswith(f"{MANIFEST.title}\n{MANIFEST.question}\n")
    assert report["answer"].replace("`", "") in shown
    assert report["findings"]
    first_findings = [finding for finding in report["findings"] if finding["kind"] != CAPTURE][
        :MOST_SHOWN
    ]
    assert first_findings or "Nothing stands out by the rules of this recipe." in shown
    for finding in first_findings:
        assert f"{finding['severity']} {finding['title']}".replace("`", "") in shown
        assert f"Evidence: {finding['details']}".replace("`", "") in shown
        assert finding["recommendation"].replace("`", "") in shown


@pytest.mark.nightly
def test_a_moved_notebook_runs_again_without_us_and_shows_exactly_the_same(result, tmp_path):
    before = read_notebook(result)
    elsewhere = tmp_path / "elsewhere" / "moved"
    shutil.copytree(result, elsewhere)
    after = run_again(before, elsewhere, tmp_path / "scratch")
    assert outputs_of(after) == outputs_of(before)


def test_nothing_is_fetched_from_a_network(result):
    notebook = read_notebook(result)
    sources = [result / "report.md", *sorted((result / "nsys_llm_view").iterdir())]
    texts = [*strings_in(notebook), *(path.read_text("utf-8") for path in sources)]
    for text in texts:
        assert not re.search(r"https?:|\bsrc\s*=|@import|url\(|\bcdn\b", text, re.I)
        assert not re.search(r"\bhref\s*=(?!\"#)", text, re.I)
    imported = re.findall(r"^\s*(?:from|import) (\w+)", "\n".join(texts), re.M)
    assert not {"urllib", "requests", "socket", "http", "subprocess"} & set(imported)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "lacking"), [("nbformat", "analysis.ipynb"), ("plotly", "report.html")]
)
def test_a_missing_package_costs_what_needs_it_and_not_the_run(
    rank_set, tmp_path, monkeypatch, package, lacking
):
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    options = ["--mode", "none", "--html", "--output", tmp_path / "out", "--input", rank_set]
    done = run(*options)
    assert done.code == 0
    assert any(
        line.endswith(f"no {lacking} was made: pip install {package}.") for line in done.said
    )
    outputs = record_of(tmp_path / "out")["Outputs"]
    assert {"analysis.ipynb", "report.html"} - {*outputs} == {lacking}
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"analysis.ipynb", "report.html", "report.md"} - made == {lacking}
