"""A finding reads tables and columns that its recipe's manifest declares.

Rows are mappings, so that no type says which names they have. Here is what does, for every line of
every finding, those too that no profile of a test reaches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.analysis import load_rules
from nsys_llm.report.price import LIMITS_PCT

ROOT = Path(__file__).parents[2]
FINDINGS = sorted((ROOT / "recipes").glob("*/findings/*.py"))


def in_brackets(tree: ast.AST) -> Iterator[str]:
    """Yield the texts by which anything is subscripted, but for labels of rows (`loc`)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            of_rows = isinstance(node.value, ast.Attribute) and node.value.attr == "loc"
            if isinstance(node.slice.value, str) and not of_rows:
                yield node.slice.value


def made_here(tree: ast.AST) -> set[str]:
    """Return the keys of mappings that a module makes for itself."""
    made: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            made += node.keys
        elif isinstance(node, ast.Call):
            made += [ast.Constant(word.arg) for word in node.keywords]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            made.append(node.slice)
    return {key.value for key in made if isinstance(key, ast.Constant)}


def declared(recipe: str) -> set[str]:
    """Return the tables, columns and rules of a recipe; of an overview, those of its recipes."""
    manifest = load_manifest(recipe)
    tables = [table for name in (recipe, *manifest.recipes) for table in load_manifest(name).writes]
    columns = {column.name for table in tables for column in table.columns}
    return columns | {table.file for table in tables} | {*load_rules(recipe), *LIMITS_PCT}


def test_every_recipe_is_looked_at():
    assert {path.parts[-3] for path in FINDINGS} == {*recipe_names()}


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_names_in_brackets_are_declared(path):
    tree = ast.parse(path.read_text("utf-8"))
    texts = ast.parse(path.with_name("texts.py").read_text("utf-8"))
    made = made_here(tree) | made_here(texts)
    assert {*in_brackets(tree)} - declared(path.parts[-3]) - made == set()


def test_a_misspelt_column_is_noticed():
    tree = ast.parse("def lost(row):\n    return row['lost_ms'] + row['lost_ns']\n")
    assert "lost_ms" in {*in_brackets(tree)} - declared("tail_stats") - made_here(tree)
