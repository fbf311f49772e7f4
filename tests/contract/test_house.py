"""What neither ruff nor import-linter can say of the source folders."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from nsys_llm import __version__
from nsys_llm.manifest.manifest import load_manifest, recipe_names

ROOT = Path(__file__).parents[2]
MODULES = [*(ROOT / "shared").rglob("*.py"), *(ROOT / "recipes").rglob("*.py")]
MOST_LINES = 400
#: What install.py loads, with Python's own library and nothing else.
LOADED = ("core.errors", "install.options", "install.steps", "install.check", "install.wheelhouse")


@cache
def parsed(path):
    return ast.parse(path.read_text("utf-8"), str(path))


def test_modules_are_short_enough_to_read():
    # What has one row a rule is as long as there are rules.
    read = [path for path in MODULES if path.name != "texts.py"]
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in read}
    assert len(lines) > 200
    assert {path: n for path, n in lines.items() if n > MOST_LINES} == {}


def test_only_the_bridge_knows_the_framework_and_only_the_scripts_know_the_bridge():
    framework, bridge = set(), set()
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            imported = []
            if isinstance(node, ast.ImportFrom) and node.module:
                imported = [node.module]
            elif isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            for module in imported:
                framework |= {path.stem} if module.startswith("nsys_recipe") else set()
                bridge |= {path.stem} if module == "nsys_llm.run.nsys_adapter" else set()
                # That one ties Nsight Systems 2023.4 to Python 3.11.
                assert not module.startswith("nsys_recipe.data_service")
    assert (framework, bridge) == ({"nsys_adapter"}, set(recipe_names()))


def test_a_recipe_is_reached_by_name_in_one_module_only():
    loading = {
        path.stem
        for path in MODULES
        if any(
            isinstance(node, ast.Name) and node.id in ("import_module", "__import__")
            for node in ast.walk(parsed(path))
        )
    }
    # The other asks a worker for this package by name, as it may not be there.
    assert loading == {"analysis", "dask_errors"}


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_recipes_script_holds_nothing_but_the_class(recipe):
    document, *statements = parsed(ROOT / "recipes" / recipe / f"{recipe}.py").body
    assert isinstance(document, ast.Expr)
    *others, last = statements
    for statement in others:
        # Before the class: imports, and checks that end in an error.
        if isinstance(statement, ast.If):
            assert not statement.orelse
            assert [type(node) for node in statement.body] == [ast.Raise]
        else:
            assert isinstance(statement, ast.Import | ast.ImportFrom)
    ours = [statement.module for statement in others if isinstance(statement, ast.ImportFrom)]
    assert ours == ["importlib.util", "nsys_llm.run.nsys_adapter"]
    assert isinstance(last, ast.ClassDef)
    assert [type(node) for node in last.body] == [ast.Expr], "more than a docstring"
    assert [ast.unparse(base) for base in last.bases] == ["RankRecipe"]
    assert last.name == load_manifest(recipe).class_name
    given = {word.arg: ast.literal_eval(word.value) for word in last.keywords}
    assert given == {"recipe": recipe, "version": __version__}


def test_what_install_loads_is_the_standard_library_only():
    code = (
        "import sys, types, importlib; package = sys.modules['nsys_llm'] = "
        "types.ModuleType('nsys_llm'); package.__path__ = [sys.argv.pop(1)]\n"
        "for name in sys.argv[1:]: importlib.import_module('nsys_llm.' + name)"
    )
    command = [sys.executable, "-S", "-I", "-c", code, ROOT / "shared" / "nsys_llm", *LOADED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
