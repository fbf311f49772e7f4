"""The list of planted bugs fits the code: `tests/mutants/run.py` plants them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "mutants"))

import run  # noqa: E402

from nsys_llm.manifest.manifest import recipe_names  # noqa: E402

PLANTED = run.planted()


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: f"{bug.recipe}: {bug.says}")
def test_a_planted_bug_fits_one_place_of_the_code_and_names_tests(bug):
    text = (ROOT / bug.file).read_text("utf-8")
    assert text.count(bug.right) == 1
    compile(text.replace(bug.right, bug.wrong), bug.file, "exec")
    assert all((ROOT / "tests" / name).is_file() for name in bug.tests)


def test_every_recipe_has_planted_bugs():
    assert {bug.recipe for bug in PLANTED} == {"all", *recipe_names()}
