"""Documents: what they link to is there, and what they show is what one gets."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.testing.demo import write_demo

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document):
    links = re.findall(r"\]\(([^)#\s]+)", document.read_text("utf-8"))
    inside = [link for link in links if "://" not in link]
    missing = [link for link in inside if not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_recipes_page_leads_to_all_of_its_options_and_tables(recipe):
    page = (ROOT / "docs" / f"{recipe}.md").read_text("utf-8")
    assert page.startswith(f"# {recipe}")
    for name in (recipe, "common"):
        assert f"](reference/{name}.md)" in page


#: Recipes whose page begins with what they print for the demo; others show another job.
SCREENS_OF_THE_DEMO = (
    *("idle_gaps", "llm_hotspots", "nvtx_phase_attribution", "step_budget", "tail_stats"),
)
#: Pages that one looks things up in; those of `docs/reference` are others.
REFERENCES = ("findings.md", "architecture.md")


@pytest.mark.parametrize("name", [*recipe_names(), "trend"])
def test_a_page_is_question_screen_how_to_read_it_definitions_limits(name):
    page = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    headings = [
        page.index(f"\n## {title}\n") for title in ("How to read it", "Definitions", "Limits")
    ]
    screen = min(place for place in (page.find("```"), page.find("![")) if place >= 0)
    places = [page.index("**Question:**"), screen, *headings]
    assert places == sorted(places)
    assert page.index("\n## ") == headings[0]


def test_no_page_but_the_references_is_long():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    measured = re.compile(r"<!-- benchmark: .*?<!-- end of benchmark -->", re.DOTALL)
    prose = {page.name: measured.sub("", page.read_text("utf-8")) for page in pages}
    words_n = {name: len(text.split()) for name, text in prose.items()}
    assert {name: n for name, n in words_n.items() if n > 1_500 and name not in REFERENCES} == {}


def test_the_contents_have_every_page_on_one_line():
    page = (ROOT / "docs" / "README.md").read_text("utf-8")
    linked = re.findall(r"\]\((\w+\.md)", page)
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(linked) == sorted(pages)


def test_the_page_on_the_architecture_names_what_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = sorted(set(re.findall(r"`((?:\w+/)+(?:[\w.]+)?)`", page)))
    assert len(named) > 20
    folders = [
        ROOT,
        ROOT / "shared" / "nsys_llm",
        *(ROOT / "recipes" / name for name in recipe_names()),
    ]
    absent = [place for place in named if not any((folder / place).exists() for folder in folders)]
    assert absent == []


def test_the_benchmark_starts_without_anything_set():
    script = ROOT / "tests/benchmarks/bench.py"
    command = [sys.executable, str(script), "--only", "none"]
    subprocess.run(command, check=True, timeout=50, env={**os.environ, "PYTHONPATH": ""})


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    write_demo(folder / "nsys-llm-demo")
    return folder


def test_the_readme_shows_what_the_demo_prints(demo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    words = ["--mode", "none", "--output", demo / "out"]
    ended = run(*words, "--input", demo / "nsys-llm-demo/baseline", recipe="llm_overview")
    summary = "\n".join(ended.printed[: ended.printed.index("Generated:")])
    assert " 1 about" in summary
    assert summary in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_shows_a_gate_that_passes_and_one_that_fails(demo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(demo)
    text = (ROOT / "README.md").read_text("utf-8")
    (session,) = re.findall(r"^```\n(\$ nsys-llm trace_diff .*?)^```$", text, re.M | re.S)
    better, worse, code = re.split(r"^\$ ", session, flags=re.M)[1:]
    for shown, name, expected in ((better, "better", 0), (worse, "worse", int(code.split()[-1]))):
        command, *lines = shown.splitlines()
        words = [*command.split()[2:], "--mode", "none", "--output", str(demo / name)]
        ended = run(*words, recipe="trace_diff")
        assert ended.code == expected
        printed = "\n".join([*ended.printed, *ended.said])
        assert [line for line in lines if line != "..." and line not in printed] == []


@pytest.mark.nightly
@pytest.mark.parametrize("recipe", SCREENS_OF_THE_DEMO)
def test_a_page_shows_what_the_recipe_prints_for_the_demo(recipe, demo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    page = (ROOT / "docs" / f"{recipe}.md").read_text("utf-8")
    (screen,) = re.findall(
        rf"^```\n\$ nsys recipe {recipe} --input ranks/\n(.*?)^```$", page, re.M | re.S
    )
    words = ["--mode", "none", "--output", demo / recipe]
    ended = run(*words, "--input", demo / "nsys-llm-demo/baseline", recipe=recipe)
    printed = "\n".join(ended.printed)
    assert [part for part in screen.strip().split("\n\n") if part not in printed] == []


def test_the_session_in_the_readme_gives_what_it_shows(demo, monkeypatch):
    monkeypatch.chdir(demo)
    (session,) = re.findall(
        r"^```python\n(>>> .*?)```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S
    )
    asked = doctest.DocTestParser().get_doctest(session, {}, "README.md", "README.md", 0)
    assert len(asked.examples) >= 6
    done = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(asked)
    assert (done.attempted, done.failed) == (len(asked.examples), 0)


def test_the_readme_names_every_recipe_in_its_first_table():
    text = (ROOT / "README.md").read_text("utf-8")
    table = text.partition("| recipe | question |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| \[`(\w+)`\]", table, re.M)) == set(recipe_names())
