"""Everything public says what it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(ROOT)
    for folder in ("shared", "recipes")
    for path in (ROOT / folder).rglob("*.py")
)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(tree, prefix=""):
    """Yield the public classes, functions and methods with their full names; none of a function."""
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(node, f"{prefix}{node.name}.")


def undocumented(source):
    tree = ast.parse(source)
    found = [] if ast.get_docstring(tree) else ["the module"]
    return found + [name for name, node in public(tree) if not ast.get_docstring(node)]


def test_the_files_are_found():
    assert {Path("shared/intervals.py"), Path("recipes/llm_hotspots/analysis.py")} <= set(FILES)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_public_module_class_and_function_has_a_docstring(path):
    assert undocumented((ROOT / path).read_text("utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_docstring_begins_with_one_whole_sentence(path):
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    for name, node in [("the module", tree), *public(tree)]:
        document = ast.get_docstring(node)
        # The command's docstring is its help text, which begins with what it is called.
        summary = (document or "").split("\n\n")[0].replace("\n", " ")
        assert summary.rstrip("`")[-1:] in (".", ":"), f"{name}: {summary}"
        assert not summary.startswith(("TODO", "FIXME")), name


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ('"""M."""', []),
        ("x = 1", ["the module"]),
        ('"""M."""\ndef f(): pass', ["f"]),
        ('"""M."""\nasync def f(): pass', ["f"]),
        ('"""M."""\ndef _f(): pass', []),
        ('"""M."""\nclass A:\n    """A."""\n    def f(self): pass', ["A.f"]),
        ('"""M."""\nclass A:\n    """A."""\n    def __init__(self): pass', []),
        ('"""M."""\nclass _A:\n    def f(self): pass', []),
        ('"""M."""\nclass A:\n    class B:\n        """B."""', ["A"]),
        ('"""M."""\ndef f():\n    """F."""\n    def g(): pass', []),
    ],
)
def test_a_planted_gap_is_seen(source, missing):
    assert undocumented(source) == missing
