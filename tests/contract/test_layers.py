"""Who may import whom, read from the source. A new arrow is a decision, and is made here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from nsys_llm import __version__
from nsys_llm.manifest import load_manifest, recipe_names

ROOT = Path(__file__).parents[2]
SHARED = {
    ".".join(["nsys_llm", *path.relative_to(ROOT / "shared").with_suffix("").parts]): path
    for path in sorted((ROOT / "shared").rglob("*.py"))
}
SCRIPTS = {name: ROOT / "recipes" / name / f"{name}.py" for name in recipe_names()}
RECIPES = {
    ".".join(["nsys_llm", *path.relative_to(ROOT).with_suffix("").parts]): path
    for path in sorted((ROOT / "recipes").rglob("*.py"))
}
MODULES = {**SHARED, **RECIPES}

MOST_LINES = 300
MOST_LINES_OF_A_FUNCTION = 60

#: What the pure modules import of ours, as it is now. They do no I/O and know no run.
ALLOWED = {
    "api_classes": {"names"},
    "attributed_ops": {
        "graph_nodes",
        "grouping",
        "handed_over",
        "intervals",
        "range_forest",
        "tables",
    },
    "attribution": {"intervals"},
    "bursts": {"intervals"},
    "capture_edges": {"intervals", "tables"},
    "categories": {"errors"},
    "coded_names": {"grouping", "intervals", "tables"},
    "clock_lines": {"intervals"},
    "collective_alignment": {"clock_lines", "intervals"},
    "collective_classes": {"collective_waits", "intervals"},
    "collective_clocks": {"clock_lines", "intervals"},
    "collective_matching": {"collective_alignment", "collective_members", "intervals"},
    "collective_members": {"clock_lines", "collective_alignment", "intervals"},
    "collective_names": set(),
    "collective_waits": {"intervals"},
    "communication": {"categories"},
    "concurrency": {"intervals"},
    "cuda_codes": set(),
    "declared": {"units"},
    "device_links": {"tables"},
    "distributions": {"intervals"},
    "effects": {"intervals"},
    "enclosing": {"intervals"},
    "errors": set(),
    "exclusive": {"intervals"},
    "filters": {"intervals", "ranges"},
    "findings": {"errors"},
    "gaps": {"intervals"},
    "gates": {"errors"},
    "gpu_peaks": {"tables"},
    "graph_nodes": {"attribution", "intervals", "tables"},
    "grouping": {"intervals"},
    "handed_over": {"grouping", "intervals", "range_forest", "tables"},
    "host_time": {"grouping", "intervals"},
    "idle_causes": {"api_classes"},
    "intervals": {"errors"},
    "keyed_sums": {"intervals"},
    "launch_ranges": {"attribution", "enclosing", "intervals", "ranges", "tables"},
    "longest": {"intervals", "tables"},
    "longest_rows": {"distributions", "grouping", "intervals"},
    "memory_kinds": {"cuda_codes", "intervals"},
    "named_counts": {"distributions"},
    "names": set(),
    "nearest_names": set(),
    "narrow_counts": {"distributions"},
    "overheads": set(),
    "overlap": {"intervals"},
    "p2p_edges": {"collective_alignment", "intervals", "p2p_pairs"},
    "p2p_matching": {
        "collective_alignment",
        "collective_clocks",
        "collective_matching",
        "collective_names",
        "intervals",
        "p2p_edges",
        "p2p_pairs",
    },
    "p2p_pairs": {"collective_alignment", "intervals"},
    "patterns": {"errors"},
    "peak_rate": {"intervals"},
    "range_forest": {"enclosing", "grouping", "intervals", "ranges", "tables"},
    "range_labels": {"intervals", "names"},
    "range_names": {"grouping", "intervals", "names", "ranges", "tables"},
    "ranges": {
        "attribution",
        "errors",
        "grouping",
        "intervals",
        "names",
        "patterns",
        "tables",
    },
    "rank_spells": {"intervals"},
    "rank_spread": {"grouping", "intervals"},
    "rank_tests": {"distributions", "intervals"},
    "sampling": {"grouping", "intervals"},
    "secret_names": set(),
    "sides": {"errors"},
    "sqlite_cells": {"intervals", "tables"},
    "stages": set(),
    "tables": {"intervals"},
    "tails": {"distributions", "grouping", "intervals"},
    "thread_calls": {"gaps", "grouping", "intervals"},
    "time_bins": {"grouping", "intervals"},
    "units": {"errors"},
    "view.kernel_names": set(),
    "view.text": {"view.kernel_names"},
    "watermarks": {"intervals", "time_bins"},
}

#: Is copied beside every notebook, and runs there alone.
COPIED = "nsys_llm.view."

#: Imported inside the functions that need them only: they take long, or may not be there.
LATE = {"dask", "distributed", "plotly"}

each_module = pytest.mark.parametrize("module", MODULES)
each_pure_module = pytest.mark.parametrize("module", ALLOWED)
each_recipe = pytest.mark.parametrize("recipe", SCRIPTS)


def parsed(path):
    return ast.parse(path.read_text("utf-8"), str(path))


def imported(nodes):
    """Return the full names of the modules and objects that import statements name."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # Only the modules of `view` import each other relatively.
            module = f"{COPIED}{node.module}" if node.level else node.module
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def relative(path):
    nodes = ast.walk(parsed(path))
    return {node.lineno for node in nodes if isinstance(node, ast.ImportFrom) and node.level}


def top_level(tree):
    """Yield what runs on import: all statements but the bodies of functions."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def ours(module):
    """Return which of our modules a module imports, wherever it does."""
    return {
        name
        for full in imported(ast.walk(parsed(MODULES[module])))
        for name in MODULES
        if full == name or full.startswith(f"{name}.")
    }


def packages(nodes):
    return {name.partition(".")[0] for name in imported(nodes)}


def texts(tree):
    """Yield literals that are no docstrings, as text."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documents:
            yield str(node.value)


def test_the_modules_are_found():
    assert {"nsys_llm.intervals", "nsys_llm.runner", "nsys_llm.cli"} <= SHARED.keys()
    assert "nsys_llm.recipes.llm_hotspots.analysis" in RECIPES


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith(COPIED)])
def test_imports_are_absolute(module):
    assert not relative(MODULES[module])


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith(COPIED)])
def test_what_is_copied_beside_a_notebook_imports_its_own_kind_only(module):
    inside = {name for name in imported(ast.walk(parsed(MODULES[module]))) if "nsys_llm" in name}
    assert {name for name in inside if not name.startswith(COPIED)} == set()
    assert all(
        node.level < 2 for node in ast.walk(parsed(MODULES[module])) if hasattr(node, "level")
    )


@pytest.mark.parametrize("module", SHARED)
def test_shared_never_imports_a_recipe(module):
    found = imported(ast.walk(parsed(SHARED[module])))
    assert not {name for name in found if name.startswith("nsys_llm.recipes")}


def test_a_recipe_is_reached_by_name_in_one_module_only():
    def named(path):
        tree = parsed(path)
        dynamic = {"import_module", "__import__"} & {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
        }
        return dynamic or any("nsys_llm.recipes." in text for text in texts(tree))

    assert {name for name, path in SHARED.items() if named(path)} == {"nsys_llm.recipe_module"}


@each_pure_module
def test_a_pure_module_imports_only_what_is_allowed(module):
    found = {name.removeprefix("nsys_llm.") for name in ours(f"nsys_llm.{module}")}
    # __init__ holds the version; nothing pure needs it.
    assert found == ALLOWED[module]


@each_pure_module
def test_a_pure_module_knows_no_pandas_no_files_and_no_processes(module):
    found = packages(ast.walk(parsed(SHARED[f"nsys_llm.{module}"])))
    refused = {"pandas", "pyarrow", "sqlite3", "os", "pathlib", "subprocess", "tempfile", "shutil"}
    assert not found & refused


def test_what_is_pure_rests_on_what_is_pure():
    assert {name for allowed in ALLOWED.values() for name in allowed} <= ALLOWED.keys()


def test_no_modules_import_each_other_in_a_circle():
    arrows = {module: ours(module) - {module, "nsys_llm.__init__"} for module in MODULES}
    while free := {module for module, targets in arrows.items() if not targets}:
        arrows = {
            module: targets - free for module, targets in arrows.items() if module not in free
        }
    assert not arrows


@each_module
def test_only_the_adapter_knows_the_framework(module):
    found = imported(ast.walk(parsed(MODULES[module])))
    framework = {name for name in found if name.partition(".")[0] == "nsys_recipe"}
    assert bool(framework) == (module == "nsys_llm.nsys_adapter")
    # That one ties Nsight Systems 2023.4 to Python 3.11.
    assert not {name for name in framework if "data_service" in name}


def test_only_recipe_scripts_import_the_adapter():
    using = {module for module in MODULES if "nsys_llm.nsys_adapter" in ours(module)}
    assert using == {f"nsys_llm.recipes.{name}.{name}" for name in SCRIPTS}


@each_module
def test_slow_packages_are_imported_late(module):
    # What draws is imported when something is drawn.
    late = LATE - {"plotly"} if module.startswith("nsys_llm.view.") else LATE
    assert not packages(top_level(parsed(MODULES[module]))) & late


@each_recipe
def test_a_recipes_script_holds_nothing_but_the_class(recipe):
    document, *statements = parsed(SCRIPTS[recipe]).body
    assert isinstance(document, ast.Expr)
    *others, last = statements
    for statement in others:
        # Before the class: imports, and checks that end in an error.
        if isinstance(statement, ast.If):
            assert not statement.orelse
            assert [type(one) for one in statement.body] == [ast.Raise]
        else:
            assert isinstance(statement, ast.Import | ast.ImportFrom)
    assert isinstance(last, ast.ClassDef)
    assert [type(one) for one in last.body] == [ast.Expr], "more than a docstring"
    assert [ast.unparse(base) for base in last.bases] == ["RankRecipe"]
    assert last.name == load_manifest(recipe).class_name
    given = {one.arg: ast.literal_eval(one.value) for one in last.keywords}
    assert given == {"recipe": recipe, "version": __version__}


@each_module
def test_a_module_is_short_enough_to_read(module):
    assert len(MODULES[module].read_text("utf-8").splitlines()) <= MOST_LINES


@each_module
def test_a_function_is_short_enough_to_see(module):
    lines = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(parsed(MODULES[module]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: n for name, n in lines.items() if n > MOST_LINES_OF_A_FUNCTION} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import dask", True),
        ("import dask.array as da", True),
        ("from dask.callbacks import Callback", True),
        ("try:\n    import dask\nexcept ValueError:\n    pass", True),
        ("class A:\n    import dask", True),
        ("if True:\n    from dask import compute", True),
        ("def f():\n    import dask", False),
        ("import daskless", False),
        ("import numpy", False),
    ],
)
def test_a_planted_import_is_seen_where_it_runs(source, found):
    assert bool(packages(top_level(ast.parse(source))) & LATE) == found
