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
    files = [file for top in ("shared", "recipes") for file in (ROOT / top).rglob("*.py")]
    words = {word for file in files for word in re.findall(r"\w+", file.read_text("utf-8"))}
    words |= {part for file in files for part in file.parts}
    names = set(re.findall(r"`([A-Za-z]\w+)(?:\(\))?`", PAGE))
    assert len(names) > 30
    assert sorted(names - words) == []


def test_every_module_on_the_page_is_there():
    places = ("*.py", "shared/**/*.py", "recipes/**/*.py", "tests/**/*.py")
    files = [f"/{file.relative_to(ROOT)}" for place in places for file in ROOT.glob(place)]
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    assert len(named) > 80
    assert [name for name in sorted(named) if not any(f.endswith(f"/{name}") for f in files)] == []
