"""docs/architecture.md: its code runs, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

from quick_run import resolved
from results import analyse, assert_same

from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode
from nsys_llm.run import runner
from nsys_llm.run.executors import Inline

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SOURCES = [file for top in ("shared", "recipes") for file in (ROOT / top).rglob("*.py")]


def test_the_same_as_code_is_a_run(rank_set, tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    folder = tmp_path / "page"
    folder.mkdir()
    names = {
        "recipe": "idle_gaps",
        "options": resolved("idle_gaps", "--input", str(rank_set)),
        "executor": Inline(),
        "console": Console(quiet=True),
        "folder": folder,
        "code": ExitCode.DONE,
    }
    # Every other name is one that `run_recipe` calls.
    exec(code, {**vars(runner), **names})
    run = analyse(tmp_path / "run", rank_set, recipe="idle_gaps")
    assert_same(folder, run, recipe="idle_gaps")
    assert (folder / "report.md").read_bytes() == (run / "report.md").read_bytes()


def test_every_name_on_the_page_is_in_the_code():
    words = {word for file in SOURCES for word in re.findall(r"\w+", file.read_text("utf-8"))}
    words |= {part for file in SOURCES for part in file.parts}
    names = set(re.findall(r"`([A-Za-z]\w+)(?:\(\))?`", PAGE))
    assert len(names) > 30
    assert sorted(names - words) == []


def test_every_module_that_pages_or_sources_name_is_there():
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "install.py"]
    there = [str(file) for file in (*SOURCES, *(ROOT / "tests").rglob("*.py"), *pages)]
    texts = [file.read_text("utf-8") for file in (*SOURCES, *pages)]
    names = {name for text in texts for name in re.findall(r"`((?:\w+/)*\w+\.py)`", text)}
    assert len(names) > 60
    lacking = [name for name in names if not any(file.endswith(f"/{name}") for file in there)]
    assert sorted(lacking) == []
